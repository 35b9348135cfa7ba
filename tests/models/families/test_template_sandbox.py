"""Chat templates of strangers: what transformers' Jinja has works; what would hang ends."""

import datetime

import pytest

from vivace.models.families.template.sandbox import Template, TemplateError

SIXTY = "{% set ns = namespace(x='ab', n=9) %}{% for i in range(60) %}"
HOSTILE = {
    "a long text": "{{ 'a' * 10**9 }}",
    "a long list": "{{ ([1] * 10**9)|length }}",
    "a text that doubles": SIXTY + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "a sum that doubles": SIXTY + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "a block that doubles": (
        SIXTY + "{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}{% endfor %}"
    ),
    "nested loops": "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
    "nested loops with text": "{% for i in range(9999) %}{% for j in range(99) %}"
    + "x" * 999
    + "{% endfor %}{% endfor %}",
    "a long range": "{% for i in range(10**12) %}{% endfor %}",
    "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a tree of calls": "{% macro m(n) %}{% if n %}{{ m(n-1) ~ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "a power": "{{ 10 ** 10 ** 10 }}",
    "powers by squaring": SIXTY + "{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "a wide format": "{{ '%999999999d' % 1 }}",
    "a wide format method": "{{ '{:999999999}'.format(1) }}",
    "a wide padding": "{{ 'a'.ljust(10**10) }}",
    "a wide indent": "{{ [1]|tojson(indent=10**9) }}",
    "a replacement that grows": "{{ ('a' * 99999).replace('a', 'b' * 99999) }}",
    "a filter that grows": "{{ ('a' * 99999)|replace('a', 'b' * 99999) }}",
    "a join that grows": "{{ ('b' * 99999).join('a' * 99999) }}",
    "the inside of objects": "{{ messages.__class__.__base__.__subclasses__() }}",
    "a loop in a list that grows": "{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}",
}


@pytest.mark.timeout(40)
@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_template_ends(source: str) -> None:
    """With an error, soon, and without taking memory."""
    with pytest.raises(TemplateError):
        Template(source).render(messages=[])


@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{ x|nofilter }}", "{% include 'other' %}", "{{ '" + "(" * 9999 + "' }}" * 99999],
    ids=["syntax", "filter", "include", "size"],
)
def test_what_is_no_template_is_said(source: str) -> None:
    """At load or at the first rendering, as one kind of error."""
    with pytest.raises(TemplateError):
        Template(source).render()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'ä': '<&>'}|tojson }}", '{"ä": "<&>"}'),
        ("{{ [1, 2]|tojson(indent=2) }}", "[\n  1,\n  2\n]"),
        (
            "{% for i in 'abc' %}{% if i == 'b' %}{% break %}{% endif %}{{ i }}{{ loop.last }}{% endfor %}",
            "aFalse",
        ),
        ("{% generation %}said{% endgeneration %}", "said"),
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2026"),
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),
        ("{{ 'a' ~ 1 ~ none }}{{ missing }}{{ '{}-{}'.format(1, 2) }}", "a1None1-2"),
        ("{% set l = [] %}{% set _ = l.append(1) %}{{ l }}", "[1]"),
    ],
)
def test_templates_have_what_transformers_gives_them(source: str, text: str) -> None:
    """Its functions, its filters, its white space."""
    assert Template(source, today=datetime.date(2026, 1, 2)).render() == text


def test_a_template_refuses_in_its_own_words() -> None:
    """`raise_exception` says what it says."""
    with pytest.raises(TemplateError, match="Only users may speak"):
        Template("{{ raise_exception('Only users may speak') }}").render()
