module podstamp.dev/bench/admission

go 1.22
