"""Who may do what: the whole table of roles, and who may approve whose requests in each mode."""

from __future__ import annotations

from itertools import product

import pytest

from hwtool.config import ApprovalMode
from hwtool.policy import AGENT_GROUP, OPERATOR_GROUP, OVERFLOW_UID, Caller, Role, is_direct, may_approve, role_of

DAEMON, SOMEBODY, ROOT = 990, 1000, 0
UIDS = {"root": ROOT, "daemon": DAEMON, "somebody": SOMEBODY, "overflow": OVERFLOW_UID}
GROUPS = {
    "-": frozenset[str](),
    "agent": frozenset({AGENT_GROUP}),
    "operator": frozenset({OPERATOR_GROUP}),
    "both": frozenset({AGENT_GROUP, OPERATOR_GROUP}),
    "foreign": frozenset({"dialout", "hwtool-"}),
}

# (socket, system install) -> user -> groups that are let in; a user not listed is always refused
ALL = set(GROUPS)
MEMBERS = {"agent", "operator", "both"}
OPERATORS = {"operator", "both"}
LET_IN: dict[tuple[Role, bool], dict[str, set[str]]] = {
    ("agent", True): {"root": ALL, "daemon": ALL, "somebody": MEMBERS, "overflow": MEMBERS},
    ("agent", False): {"root": ALL, "daemon": ALL, "somebody": ALL, "overflow": ALL},
    ("operator", True): {"root": ALL, "daemon": OPERATORS, "somebody": OPERATORS},
    ("operator", False): {"root": ALL, "daemon": ALL, "somebody": OPERATORS},
}
CASES = [
    (socket, system, user, groups, socket if groups in LET_IN[socket, system].get(user, set()) else None)
    for (socket, system), user, groups in product(LET_IN, UIDS, GROUPS)
]


@pytest.mark.parametrize(("socket", "system", "user", "groups", "role"), CASES)
def test_role_when_a_connection_comes_then_by_socket_user_and_groups(
    socket: Role, system: bool, user: str, groups: str, role: Role | None
) -> None:
    assert role_of(socket, UIDS[user], GROUPS[groups], DAEMON, system) == role


def test_role_when_the_overflow_user_is_the_daemons_own_then_still_no_operator() -> None:
    everything = frozenset({AGENT_GROUP, OPERATOR_GROUP})
    assert role_of("operator", OVERFLOW_UID, everything, OVERFLOW_UID, False) is None


def caller(uid: int, role: Role) -> Caller:
    return Caller(uid, role, "prefix", 0)


def test_caller_when_named_then_by_uid_alone() -> None:
    assert caller(SOMEBODY, "agent").principal == "uid:1000"
    assert caller(SOMEBODY, "operator").principal == "uid:1000"


@pytest.mark.parametrize(("uid", "keyless"), [(ROOT, False), (SOMEBODY, False), (OVERFLOW_UID, True)])
def test_caller_when_its_user_is_unknown_then_no_method_that_needs_a_key(uid: int, keyless: bool) -> None:
    assert caller(uid, "agent").keyless is keyless


# mode, approver, requester, simulated, self_approval_on_hardware, may
APPROVALS: list[tuple[ApprovalMode, int, int, bool, bool, bool]] = [
    (ApprovalMode.SEPARATE_USER, 1001, 1000, False, False, True),
    (ApprovalMode.SEPARATE_USER, 1000, 1000, False, False, False),
    (ApprovalMode.SEPARATE_USER, 1000, 1000, True, True, False),
    (ApprovalMode.SEPARATE_USER, 0, 0, False, False, False),
    (ApprovalMode.TWO_PERSON, 1001, 1000, False, False, True),
    (ApprovalMode.TWO_PERSON, 1000, 1000, True, True, False),
    (ApprovalMode.SUDO, 0, 1000, False, False, True),
    (ApprovalMode.SUDO, 0, 0, False, False, True),
    (ApprovalMode.SUDO, 1001, 1000, True, True, False),
    (ApprovalMode.SUDO, 1000, 1000, True, True, False),
    (ApprovalMode.SELF, 1000, 1000, True, False, True),
    (ApprovalMode.SELF, 1000, 1000, False, True, True),
    (ApprovalMode.SELF, 1000, 1000, False, False, False),
    (ApprovalMode.SELF, 1001, 1000, False, False, True),
]


@pytest.mark.parametrize(("mode", "approver", "requester", "simulated", "on_hardware", "may"), APPROVALS)
def test_approval_when_a_person_answers_then_the_mode_decides(
    mode: ApprovalMode, approver: int, requester: int, simulated: bool, on_hardware: bool, may: bool
) -> None:
    why = may_approve(mode, approver, requester, simulated, on_hardware)
    assert (why is None) is may
    if why is not None:
        assert "approv" in why


@pytest.mark.parametrize("mode", list(ApprovalMode))
def test_direct_when_asked_by_an_agent_then_never(mode: ApprovalMode) -> None:
    assert not is_direct(mode, caller(ROOT, "agent"))
    assert not is_direct(mode, caller(SOMEBODY, "agent"))


@pytest.mark.parametrize(
    ("mode", "uid", "direct"),
    [
        (ApprovalMode.SEPARATE_USER, SOMEBODY, True),
        (ApprovalMode.SELF, SOMEBODY, True),
        (ApprovalMode.SUDO, ROOT, True),
        (ApprovalMode.SUDO, SOMEBODY, False),
        (ApprovalMode.TWO_PERSON, SOMEBODY, False),
        (ApprovalMode.TWO_PERSON, ROOT, False),
    ],
)
def test_direct_when_asked_on_the_operator_socket_then_the_mode_decides(
    mode: ApprovalMode, uid: int, direct: bool
) -> None:
    assert is_direct(mode, caller(uid, "operator")) is direct
