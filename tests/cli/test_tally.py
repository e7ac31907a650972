# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a JUnit log says, and what two tries of a test come to."""

from __future__ import annotations

from pathlib import Path

from datapath.cli.tally import Failure, Tally, after_second_try, in_short, read_junit


def test_counts(tmp_path: Path) -> None:
    log = tmp_path / "log.xml"
    log.write_text(
        "<testsuites><testsuite><testcase name='a' time='2.5'/>"
        "<testcase classname='m' name='b'><failure message='one&#10; two'/></testcase>"
        "<testcase name='c'><error/></testcase>"
        "<testcase classname='m' name='d'><skipped message='needs a moon'/></testcase>"
        "</testsuite></testsuites>"
    )
    tally = read_junit(log)
    assert str(tally) == "1 passed, 2 failed, 1 skipped"
    assert tally.failures == [("m.b", "one two"), (".c", "")]
    assert tally.slowest(2) == [(2.5, ".a"), (0.0, "m.d")]
    assert tally.skip_reasons == ["m.d: needs a moon"]


def test_cpu_time_is_added_up_by_file(tmp_path: Path) -> None:
    log = tmp_path / "log.xml"
    log.write_text(
        "<testsuites><testsuite>"
        "<properties><property name='other' value='x'/></properties>"
        "<testcase classname='tests.a.test_b' name='one[x.y]'>"
        "<properties><property name='cpu_s' value='1.50'/></properties></testcase>"
        "<testcase classname='tests.a.test_b.TestIt' name='two'>"
        "<properties><property name='cpu_s' value='0.25'/></properties></testcase>"
        "<testcase classname='tests.c' name='three'>"
        "<properties><property name='cpu_s' value='9.00'/></properties></testcase>"
        "</testsuite></testsuites>"
    )
    tally = read_junit(log)
    tally.add(read_junit(log))
    assert tally.hungriest(5) == [(18.0, "tests.c"), (3.5, "tests.a.test_b")]


def test_a_long_message_keeps_its_end() -> None:
    line = in_short("AssertionError: results: x\n" + 100 * "progress\n" + "error: no such device")
    assert line.startswith("AssertionError: results: x progress")
    assert line.endswith(" progress error: no such device")
    assert len(line) < 410


def test_the_second_try_must_be_of_the_tests_that_failed() -> None:
    first = Tally(passed=5, failed=2, failures=[Failure("a", "x"), Failure("b", "y")])
    assert after_second_try(first, Tally()) is first
    assert after_second_try(first, Tally(passed=3)) is first
    died = Tally(passed=1, failed=1)
    assert after_second_try(first, died) is first
    stopped = Tally(passed=2, never_ran=1)
    assert after_second_try(first, stopped) is first


def test_tests_that_never_ran_are_told() -> None:
    tally = Tally(passed=3, never_ran=1)
    tally.add(Tally(failed=1, never_ran=2))
    assert str(tally) == "3 passed, 1 failed, 0 skipped, 3 never ran"


def test_tests_that_failed_or_never_ran_are_not_good() -> None:
    assert Tally(passed=3, skipped=1).good
    bad = [Tally(), Tally(skipped=1), Tally(passed=3, failed=1), Tally(passed=3, never_ran=1)]
    assert not any(tally.good for tally in bad)
