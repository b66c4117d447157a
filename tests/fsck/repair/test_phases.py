"""The table of repairs: every plan is served, every problem says what is done about it, and names go with groups."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from f2tools.fsck import plans
from f2tools.fsck.cli import GROUPS
from f2tools.fsck.findings import Finding, Severity
from f2tools.fsck.problems import CATALOGUE, DIR_LINKS, GC_FAILURES
from f2tools.fsck.repair.phases import REPAIRS, Phase, phases_of, serves

NAMED = {plan for problem in CATALOGUE.values() for plan in problem.plans}
PLANS = {kind for kind in vars(plans).values() if isinstance(kind, type) and issubclass(kind, plans.RepairPlan)}


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_problem_has_a_plan_that_is_served_or_says_that_there_is_no_repair(code: str) -> None:
    problem = CATALOGUE[code]
    served = [phase for plan in problem.plans for phase in phases_of(plan, problem.severity)]
    assert bool(served) != problem.repair.startswith("none"), code


def test_every_plan_that_a_finding_of_weight_may_carry_is_in_the_table() -> None:
    weighty = [problem for problem in CATALOGUE.values() if problem.severity >= Severity.WARNING]
    assert {plan for problem in weighty for plan in problem.plans} <= REPAIRS.keys() <= NAMED


def test_every_plan_is_some_findings() -> None:
    assert {kind.__name__ for kind in PLANS - NAMED} == {"RepairPlan", "EntryPlan"}


def test_every_group_of_repairs_can_be_asked_about() -> None:
    assert {phase.group for phase in Phase if phase.group} == GROUPS.keys()


def test_what_is_only_noted_is_left_alone() -> None:
    assert serves(Phase.COUNT, Finding(DIR_LINKS, repair=plans.SetFieldLast(4, "i_links", 2)))
    assert not serves(Phase.CORRECT, Finding(GC_FAILURES, repair=plans.SetField(4, "i_current_depth", 0)))


def test_json_shows_a_plan_as_its_name_and_what_it_needs() -> None:
    assert plans.SetNatIno(5, 4).as_dict() == {"name": "nat-entry", "nid": 5, "ino": 4}
    assert plans.ComputeAnew("nat-bits").as_dict() == {"name": "nat-bits"}
    assert plans.FillDirectory().as_dict() is None


def test_a_plan_is_equal_to_its_copies_and_can_not_be_changed() -> None:
    for kind in PLANS:
        plan = kind(*range(len(kind._fields)))
        assert pickle.loads(pickle.dumps(plan)) == plan == copy.copy(plan)
        assert hash(copy.copy(plan)) == hash(plan)
        for name in kind._fields:
            with pytest.raises(FrozenInstanceError):
                setattr(plan, name, 1)
            with pytest.raises(FrozenInstanceError):
                delattr(plan, name)
