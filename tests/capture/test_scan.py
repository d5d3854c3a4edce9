"""What the bytecode of a function may do, the same on every Python."""

import pytest

from paddle_fluid_boost.capture.scan import location, scan

G = 1


def effects(function):
    return [(e.reason, e.on_self) for e in scan(function.__code__).effects]


def first_line(function):
    return function.__code__.co_firstlineno


# -- writes to attributes -------------------------------------------------------------------------


def stores_argument_on_self(self, value):
    self.x = value


def stores_constant_on_self(self):
    self.x = 1


def stores_result_on_self(self, value):
    self.x = value + 1


def stores_new_local_on_self(self, value):
    local = value
    self.x = local


def stores_two_on_self(self, one, other):
    self.x, self.x = one, other


def deletes_on_self(self):
    del self.x


def stores_on_self_beside_a_comprehension(self, values):
    self.x = [self.scale for _ in values]


def stores_on_self_beside_a_lambda(self, values):
    self.x = values
    return lambda: self


def stores_on_self_and_calls_super(self, value):
    self.x = value
    return super(type(self), self)


@pytest.mark.parametrize(
    "function",
    [
        stores_argument_on_self,
        stores_constant_on_self,
        stores_result_on_self,
        stores_new_local_on_self,
        stores_two_on_self,
        deletes_on_self,
        stores_on_self_beside_a_comprehension,
        stores_on_self_beside_a_lambda,
        stores_on_self_and_calls_super,
    ],
    ids=lambda f: f.__name__,
)
def test_store_on_the_first_argument(function):
    found = effects(function)
    assert found and all(on_self for _, on_self in found)
    verb = "deletes" if function is deletes_on_self else "writes"
    assert {reason for reason, _ in found} == {f"{verb} the attribute 'x'"}


def stores_on_second(self, other):
    other.x = self


def stores_on_both_in_one_instruction(self, other):
    self.a.x = other


def stores_on_alias(self, value):
    alias = self
    alias.x = value


def stores_on_global(self):
    G.x = self


def stores_on_rebound_self(self, other):
    self = other
    self.x = 1


def stores_on_self_of_outer(self):
    def inner(other):
        self.x = other

    return inner


@pytest.mark.parametrize(
    "function",
    [
        stores_on_second,
        stores_on_both_in_one_instruction,
        stores_on_alias,
        stores_on_global,
        stores_on_rebound_self,
        stores_on_self_of_outer(None),
    ],
    ids=lambda f: f.__name__,
)
def test_store_on_anything_else(function):
    assert effects(function) == [("writes the attribute 'x'", False)]


class Made:
    def __new__(cls, *args):
        cls.count = 1
        return super().__new__(cls)

    def __init__(self, one, other):
        self.one, self.other = one, other
        self.both = [one, other]

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def adopt(self, other):
        def __init__(self, value):
            other.x = value

        return __init__


def test_constructors_may_fill_what_they_construct():
    assert effects(Made.__init__) == []


def test_constructors_may_not_write_elsewhere():
    assert effects(Made(1, 2).adopt(None)) == [("writes the attribute 'x'", False)]


def test_new_writes_to_the_class():
    assert effects(Made.__new__) == [("writes the attribute 'count'", True)]


def test_hidden_stores():
    assert effects(Made.__setattr__) == [("calls __setattr__", False)]


# -- variables ------------------------------------------------------------------------------------


def writes_global():
    global G
    G = 2


def deletes_global():
    global G
    del G


def test_global_variables():
    assert effects(writes_global) == [("writes the global variable 'G'", False)]
    assert effects(deletes_global) == [("writes the global variable 'G'", False)]


def outer():
    count, mine = 0, 0

    def inner():
        nonlocal count
        count += 1
        own = 0

        def innermost():
            nonlocal own
            own += 1

        own = mine
        return innermost

    return inner


def test_variables_of_outer_functions():
    inner = outer()
    assert effects(inner) == [("writes the variable 'count' of an outer function", False)]
    assert effects(inner()) == [("writes the variable 'own' of an outer function", False)]


def test_own_variables_are_no_effect():
    def pure(x, items):
        total = 0
        for item in items:
            total += item
        squares = [item * item for item in items]
        return dict.fromkeys(squares, total), (lambda: x)

    assert effects(pure) == []


# -- names ----------------------------------------------------------------------------------------


def reads(self, x):
    from os import path as p

    total = [self.in_comprehension * x for x in self.items]
    (lambda: self.in_lambda)()
    return p, len(total), G, x.method(self.plain.deep), super(type(self), self).parent()


def all_names(code):
    facts = [scan(code), *(all_facts for c in code.co_consts if hasattr(c, "co_code")
                           for all_facts in [scan(c)])]  # fmt: skip
    return frozenset().union(*(f.attribute_names for f in facts))


def test_attribute_names():
    names = all_names(reads.__code__)
    assert {"items", "in_comprehension", "in_lambda", "method", "plain", "deep"} <= names
    assert {"parent", "path"} <= names
    assert "G" not in names


def test_zero_argument_super():
    class Child(Made):
        def call(self):
            return super().adopt(super().one)

    assert {"adopt", "one"} <= scan(Child.call.__code__).attribute_names


def test_global_names():
    names = scan(reads.__code__).global_names
    assert {"G", "len", "type", "super"} <= names
    assert not {"self", "x", "p", "os"} & names


def test_imports():
    assert scan(reads.__code__).imports == {(0, "os")}
    code = compile("def f():\n from ..a.b import c\n import d.e as g", "f.py", "exec").co_consts[0]
    assert scan(code).imports == {(2, "a.b"), (0, "d.e")}
    assert "c" in scan(code).attribute_names


# -- lines ----------------------------------------------------------------------------------------


def many_lines(self, other):
    total = self
    total += 1

    if other:
        other.first = total

    for _ in range(3):
        other.second = (
            total
        )  # fmt: skip
    return total


def test_lines_of_effects():
    start = first_line(many_lines)
    lines = {e.reason: e.line - start for e in scan(many_lines.__code__).effects}
    assert lines["writes the attribute 'first'"] == 5
    assert lines["writes the attribute 'second'"] in (8, 9)


def test_location_shows_the_source():
    text = location(many_lines.__code__, first_line(many_lines) + 5)
    assert text.startswith(__file__) and text.endswith("other.first = total")
    assert location(many_lines.__code__.replace(co_filename="gone.py"), 3) == "gone.py:3"


def test_facts_are_cached():
    assert scan(reads.__code__) is scan(reads.__code__)
