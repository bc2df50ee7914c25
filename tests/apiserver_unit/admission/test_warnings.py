"""Warning headers are written and cut as kube-apiserver does."""

from tests.apiserver.admission.warnings import headers


def test_a_text_is_quoted() -> None:
    assert headers(['say "hi" \\o/']) == ['299 - "say \\"hi\\" \\\\o/"']


def test_repeated_empty_and_unprintable_texts_are_not_sent() -> None:
    assert headers(["a", "", "b", "a", "c\nd"]) == ['299 - "a"', '299 - "b"']


def test_texts_stay_whole_up_to_the_limit() -> None:
    assert headers(["x" * 4096]) == [f'299 - "{"x" * 4096}"']


def test_beyond_the_limit_each_is_cut_and_the_last_ones_are_dropped() -> None:
    texts = [f"{n:03}" + "x" * 497 for n in range(20)]
    sent = headers(texts)
    assert len(sent) == 16
    assert sent[0] == f'299 - "{texts[0][:256]}"'
    assert sent[-1] == f'299 - "{texts[15][:256]}"'
