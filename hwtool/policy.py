"""Who a caller is: roles by socket and peer, and the approval modes, as pure functions.

What a caller may do with a register is for the board's policy to say (hwtool.permission).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from hwtool.config import ApprovalMode

OVERFLOW_UID: Final = 65534
OPERATOR_GROUP: Final = "hwtool-operator"
AGENT_GROUP: Final = "hwtool"
Role = Literal["agent", "operator"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is at the other end of a connection, by the kernel's word.

    Attributes:
        uid: peer's user id.
        role: what the connection may do.
        key_prefix: random, for keys that do not collide with those of other conversations.
        since_ns: wall clock at connection.
        groups: names of the peer's groups.
    """

    uid: int
    role: Role
    key_prefix: str
    since_ns: int
    groups: frozenset[str] = frozenset()

    @property
    def principal(self) -> str:
        """Scope of the caller's keys."""
        return f"uid:{self.uid}"

    @property
    def keyless(self) -> bool:
        """An unknown user: no method that needs a key."""
        return self.uid == OVERFLOW_UID


def role_of(socket: Role, uid: int, groups: frozenset[str], daemon_uid: int, system_install: bool) -> Role | None:
    """The role of a connection, None if it is refused.

    The file mode of a socket is only the second lock; this is the first. Outside the system install a connection of
    the daemon's own uid has the role of the socket it came through.
    """
    if socket == "agent":
        if not system_install or uid in (daemon_uid, 0) or AGENT_GROUP in groups or OPERATOR_GROUP in groups:
            return "agent"
        return None
    if uid == OVERFLOW_UID:
        return None
    if uid == 0 or OPERATOR_GROUP in groups or (not system_install and uid == daemon_uid):
        return "operator"
    return None


def may_approve(
    mode: ApprovalMode, approver_uid: int, requester_uid: int, simulated: bool, self_on_hardware: bool
) -> str | None:
    """None if this person may approve this request, else why not."""
    same = approver_uid == requester_uid
    match mode:
        case ApprovalMode.SELF:
            if same and not simulated and not self_on_hardware:
                return "the board does not allow self-approval on hardware"
            return None
        case ApprovalMode.SUDO:
            return None if approver_uid == 0 else "approval mode sudo: only uid 0 approves"
        case ApprovalMode.SEPARATE_USER | ApprovalMode.TWO_PERSON:
            return f"approval mode {mode}: the requester cannot approve" if same else None


def is_direct(mode: ApprovalMode, caller: Caller) -> bool:
    """Whether a person's own request on the operator socket is its own approval (journalled `direct`)."""
    if caller.role != "operator":
        return False
    match mode:
        case ApprovalMode.SEPARATE_USER | ApprovalMode.SELF:
            return True
        case ApprovalMode.SUDO:
            return caller.uid == 0
        case ApprovalMode.TWO_PERSON:
            return False
