from kube import sharing
from kube.sharing import shared


def test_equal_values_become_one_object() -> None:
    one, two = (("a", 1000 * number) for number in (1, 1))
    assert one is not two
    assert shared(one) is shared(two)


def test_values_that_differ_stay_apart() -> None:
    assert shared(("a", "b")) == ("a", "b")
    assert shared(("a", "c")) == ("a", "c")


def test_what_is_shared_stays_right_when_the_memory_begins_anew() -> None:
    values = [shared(f"value {number}") for number in range(50_000)]
    assert values == [f"value {number}" for number in range(50_000)]
    assert shared("value 1") == "value 1"
    assert len(sharing._known) <= 20_000
