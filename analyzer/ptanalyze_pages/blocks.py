"""Blocks of 2 MiB of a running process, made huge pages and split again from outside; it is never stopped."""

import ctypes
import errno
import fcntl
import math
import mmap
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

import ptanalyze as pt
from ptanalyze_host.doctor_command import held
from ptanalyze_host.dump import alive, descendants
from ptanalyze_host.relocate import spare

PAGE, HUGE, SLOTS = 4096, 2 << 20, 512
PROCESS_MADVISE, MADV_COLD, MADV_COLLAPSE = 440, 20, 25
PRESENT, SWAPPED, FILE, EXCLUSIVE = (np.uint64(1 << bit) for bit in (63, 62, 61, 56))  # of pagemap
FRAME = np.uint64((1 << 55) - 1)
PAGEMAP_SCAN, PAGE_IS_HUGE = 0xC0606610, 1 << 6  # include/uapi/linux/fs.h
AREA = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ (\d+) *(.*)")
SHMEM = ("/dev/zero", "/SYSV", "/memfd:", "/dev/shm/")
FLAGS = {"lo": "locked", "mg": "MADV_MERGEABLE", "ht": "hugetlbfs"}
FLAGS["nh"] = "MADV_NOHUGEPAGE or MAP_STACK"  # the latter from Linux 6.7 on: commit c4608d1bf7c6
FLAGS |= dict.fromkeys(("um", "uw", "ui"), "userfaultfd") | dict.fromkeys(("io", "pf"), "of a device")
SHARED = "shared memory: shmem_enabled, or the program (PostgreSQL: huge_pages = on)"
DOUBTS = ("swapped in part", "of a file", "shared with another process, until that ends")
RESERVE = 64 << 20  # bytes that stay free in the machine and the control group
ANEW = "in other frames than those made huge: allocated since, or migrated"
SHORT = "64 MiB would not stay free, of the machine's memory or its control group's"
STEP = 16  # blocks of a call: each drains lists on all CPUs, and 64 at once took a second on a busy machine
LAZY = "with pages that were given back (MADV_FREE), and would be taken again"
PARTLY = "of an area with some huge pages, of which Linux before 6.7 does not tell which"
IN_ROW = 0.9  # of a block's pages have the frame after that of the page before
READ = 1 << 30  # bytes of addresses whose pagemap is read at once
kernel = ctypes.CDLL(None, use_errno=True)


class Area(NamedTuple):
    """Private anonymous or shared memory of a process. huge, resident: bytes; left: why it is left alone;
    asks: its program asks for huge pages there (MADV_HUGEPAGE)."""

    start: int
    end: int
    name: str
    resident: int
    huge: int
    left: str
    asks: bool


def areas_in(smaps: str) -> Iterator[Area]:
    for text in re.split(r"\n(?=[0-9a-f]+-)", smaps):
        area = AREA.match(text)
        shared = bool(area and area[3][3] == "s" and area[5].startswith(SHMEM))
        private = bool(area and area[3][3] == "p" and area[4] == "0")
        if not area or not (shared or (private and re.match(r"$|\[heap|\[anon", area[5]))):
            continue
        facts = dict(re.findall(r"^(Rss|AnonHugePages|LazyFree|VmFlags): +(.*?)(?: kB)?$", text, re.M))
        flags = facts.get("VmFlags", "").split()
        whys = [FLAGS[flag] for flag in flags if flag in FLAGS]
        if not area[3].startswith("rw"):
            whys.append("not writable")
        whys += [LAZY] * (facts.get("LazyFree", "0") != "0")
        left = SHARED if shared else (whys or [""])[0]
        resident, huge = (1024 * int(facts.get(name, 0)) for name in ("Rss", "AnonHugePages"))
        yield Area(int(area[1], 16), int(area[2], 16), area[5], resident, huge, left, "hg" in flags)


def doubts(words: np.ndarray, zero: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(own, holes, doubt) of blocks.

    words  uint64[B, 512], of /proc/PID/pagemap; zero: frame of the kernel's page of zeros
    own    bool[B, 512]: pages that no other process maps; holes: int64[B], addresses without a page
    doubt  bool[B, 3]: some pages are as DOUBTS says
    """
    present = words & PRESENT != 0
    own = present & (words & EXCLUSIVE != 0)
    shared = present & ~own & (words & FRAME != np.uint64(zero))
    doubt = [(words & SWAPPED != 0).any(1), (present & (words & FILE != 0)).any(1), shared.any(1)]
    return own, SLOTS - present.sum(1), np.stack(doubt, axis=1)


def zero_frame() -> int:
    """Frame of the page of zeros, found in memory of our own that was read, never written."""
    with mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        start = ctypes.addressof(ctypes.c_char.from_buffer(page))
        page[0]
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            return int(np.frombuffer(os.pread(pagemap.fileno(), 8, start // PAGE * 8), np.uint64)[0] & FRAME)


class Blocks:
    """Blocks of a process that can be changed, and what was done to them.

    areas    of the process; address: int64[B] of the blocks; holes: int64[B], pages that a collapse adds
    was_huge bool[B], as found; filled: uint8[B, 64], bits of the pages that no collapse adds
    in_row   bool[B]: those whose small pages lay in contiguous frames then
    left     {why: blocks} that are left alone; refused: {errno or why: blocks, of all turns}
    longest  seconds of the longest call, for up to STEP blocks
    frames   {address: frame of a block that was made huge, or refused}
    theirs   addresses that are huge in other frames now, as their program or the machine asks: left alone
    added    bytes that the last collapse filled up; most_added: of all; memory: the most
    pause    seconds between two blocks that are made huge; 0: STEP of them per call
    least    part of a block that is filled; 0: all blocks with pages, doubtful ones too, to be as they were
    changer  command that changes them, alone until the stack ends; "": they are only read
    progress called with (blocks that were tried, all, what) while they are made huge
    """

    def __init__(
        self,
        stack: ExitStack,
        pid: int,
        least: float = pt.law.PageTrial.FILLED,
        memory: int = 256 << 20,
        pause: float = 0.0,
        changer: str = "",
    ) -> None:
        must_be_root()
        if least and (why := pt.live.keeps_page_size(pid)):
            raise pt.UsageError(why)
        process = stack.enter_context(pt.live.open_process(pid))
        pt.live.check_process(process.proc, pid)
        self.pid, self.proc, self.memory, self.pause = pid, process.proc, memory, pause
        self.started = int(pt.live.stat_fields(f"/proc/{pid}")[19])
        self.record = pt.live.RECORDS / f"{pid}-{self.started}.json"
        if changer:
            pt.live.hold(stack, pid, changer)
        self.pidfd = os.pidfd_open(pid)
        stack.callback(os.close, self.pidfd)
        try:  # of this memory, not of what it may execute later
            self.pagemap = os.open(self.proc / "pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError:
            why = "its page map cannot be read; run as root of the host"
            raise pt.UsageError(f"{pt.live.called(pid)}: {why}") from None
        stack.callback(os.close, self.pagemap)
        self.zero, self.longest, self.added, self.most_added = zero_frame(), 0.0, 0, 0
        self.left, self.refused, self.frames = Counter[str](), Counter[str](), dict[int, int]()
        self.theirs = set[int]()
        self.progress: pt.process.Progress = None
        with process.there():
            self.areas = list(areas_in((self.proc / "smaps").read_text(errors="replace")))
            self.find(least)
        if least and not len(self.address):
            whys = counted(self.left) or "it has none"
            raise pt.UsageError(f"PID {pid}: no block of 2 MiB can be changed: {whys}")

    def find(self, least: float) -> None:
        address, filled = [np.zeros(0, np.int64)], [np.zeros((0, SLOTS // 8), np.uint8)]
        rows = [np.zeros(0, bool)]
        told = self.huge_ranges() is not None
        for area in self.areas:
            start, end = -(-area.start // HUGE) * HUGE, area.end // HUGE * HUGE
            left = area.left or PARTLY * (not told and 0 < area.huge < min(end - start, area.resident))
            if left and (least or left not in (LAZY, PARTLY)):
                self.left[left] += area.resident // HUGE
                continue
            for at in range(start, end, READ):
                blocks = np.arange(at, min(at + READ, end), HUGE)
                words = self.words(at, len(blocks))
                own, missing, doubt = doubts(words, self.zero)
                few = (own.sum(1) < least * SLOTS) & ~doubt.any(1) & (missing < SLOTS)
                self.left[f"filled to less than {100 * least:.0f} %"] += int(few.sum())
                for name, doubtful in zip(DOUBTS, doubt.T, strict=True):
                    self.left[name] += int(doubtful.sum())
                kept = ~few & (missing < SLOTS) & (~doubt.any(1) | (not least))
                address.append(blocks[kept])
                filled.append(np.packbits(own[kept], axis=1))
                rows.append((np.diff(words[kept] & FRAME, axis=1) == 1).mean(axis=1) >= IN_ROW)
        self.left = +self.left
        self.address, self.filled = np.concatenate(address), np.concatenate(filled)
        self.holes = SLOTS - np.unpackbits(self.filled, axis=1).sum(1, dtype=np.int64)
        self.was_huge = self.huge()
        self.in_row = np.concatenate(rows) & ~self.was_huge

    def frame(self, address: int) -> int:
        """Frame of the first page of a block, 0 for none."""
        return int(self.words(address, 1)[0, 0] & FRAME)

    def find_theirs(self) -> None:
        """A migrated page has another frame, too: where nobody but us makes huge pages, it is ours."""
        huge = self.address[self.huge()].tolist()
        other = {at for at in huge if self.frames.get(at) not in (None, self.frame(at))}
        if other and pt.live.huge_pages() != "always":
            areas = areas_in((self.proc / "smaps").read_text(errors="replace"))
            asked = [range(area.start, area.end) for area in areas if area.asks]
            other = {at for at in other if any(at in area for area in asked)}
        self.theirs |= other
        self.left += Counter({ANEW: len(self.theirs) - self.left[ANEW]})

    def words(self, start: int, blocks: int) -> np.ndarray:
        """uint64[B, 512] of pagemap."""
        size = blocks * PAGE
        read = os.pread(self.pagemap, size, start // PAGE * 8)
        if len(read) < size:
            raise self.ended()
        return np.frombuffer(read, np.uint64).reshape(blocks, SLOTS)

    def ended(self) -> pt.errors.PartialDataError:
        return pt.errors.PartialDataError(
            f"PID {self.pid} ended, or runs another program now: nothing is left to undo"
        )

    def huge_ranges(self) -> np.ndarray | None:
        """int64[n, 2]: what huge pages map now, behind a first one of nothing; None before Linux 6.7."""
        ranges, at, end = [np.full((1, 2), -1)], 0, (1 << 47) - PAGE
        regions = np.zeros((1024, 3), np.uint64)
        while at < end:
            what = [0, 0, PAGE_IS_HUGE, 0, PAGE_IS_HUGE]
            asked = bytearray(struct.pack("12Q", 96, 0, at, end, 0, regions.ctypes.data, 1024, *what))
            try:
                count = fcntl.ioctl(self.pagemap, PAGEMAP_SCAN, asked)
            except OSError as error:
                if error.errno == errno.ESRCH:
                    raise self.ended() from None
                if error.errno != errno.ENOTTY:
                    raise
                return None
            ranges.append(regions[:count, :2].astype(np.int64))
            at = struct.unpack_from("Q", asked, 32)[0]
        return np.concatenate(ranges)

    def huge(self) -> np.ndarray:
        """bool[B]: blocks that a huge page maps now; before Linux 6.7 all of an area, where some are."""
        if (found := self.huge_ranges()) is None:
            areas = areas_in((self.proc / "smaps").read_text(errors="replace"))
            found = np.array([(-1, -1), *((area.start, area.end) for area in areas if area.huge)])
        return np.asarray(self.address < found[np.searchsorted(found[:, 0], self.address, "right") - 1, 1])

    def shares(self) -> tuple[int, int]:
        """(bytes of the process in huge pages now, resident anonymous bytes)."""
        try:
            text = (self.proc / "smaps_rollup").read_text()
        except OSError:
            raise self.ended() from None
        facts = dict(re.findall(r"^(AnonHugePages|Anonymous): +(\d+)", text, re.M))
        return 1024 * int(facts.get("AnonHugePages", 0)), 1024 * int(facts.get("Anonymous", 0))

    def advise(self, start: int, size: int, advice: int) -> str:
        """The kernel's refusal, EINVAL for one; "" where it does as asked."""
        vector, began = struct.pack("QQ", start, size), time.monotonic()
        with at_once():
            done = kernel.syscall(PROCESS_MADVISE, self.pidfd, vector, ctypes.c_size_t(1), advice, 0)
            number = ctypes.get_errno()
        self.longest = max(self.longest, time.monotonic() - began)
        if done < 0 and number == errno.ESRCH:
            raise self.ended()
        if done < 0 and number == errno.EPERM:
            raise pt.UsageError(f"PID {self.pid}: process_madvise takes CAP_SYS_NICE and ptrace access")
        return "" if done >= 0 else errno.errorcode.get(number, str(number))

    def collapse(self, chosen: np.ndarray, until: float = math.inf) -> int:
        """Make huge pages of blocks (int64[n]: indices); how many came to be so, or were before."""
        made, self.added, every = 0, 0, len(chosen)
        while len(chosen):
            late, room = time.monotonic() > until, (spare(self.pid) - RESERVE) // HUGE
            if late or room <= 0:
                self.refused["time was up" if late else SHORT] += len(chosen)
                break
            part, chosen = np.split(chosen, [min(1 if self.pause else STEP, room)])
            tried, part = part, self.allowed(part)
            for run in np.split(part, np.flatnonzero(np.diff(self.address[part]) != HUGE) + 1):
                start, size = int(self.address[run[0]]) if len(run) else 0, len(run) * HUGE
                if len(run) > 1 and not self.advise(start, size, MADV_COLLAPSE):
                    made += len(run)
                    continue
                for address in self.address[run].tolist():
                    block = address, HUGE, MADV_COLLAPSE
                    why = self.advise(*block) and self.advise(*block)  # a scan may have held a page just then
                    made += not why
                    self.refused += Counter([why] if why else ())
            self.frames |= {address: self.frame(address) for address in self.address[tried].tolist()}
            if self.progress:
                self.progress(every - len(chosen), every, "making huge pages")
            time.sleep(self.pause)
        self.most_added = max(self.most_added, self.added)
        return made

    def takes(self, blocks: int) -> float:
        """Seconds to make so many blocks huge, one by one."""
        return blocks * (self.pause + 0.005)  # as redis took

    def allowed(self, part: np.ndarray) -> np.ndarray:
        """Blocks of `part` that may still be collapsed; what they add is counted."""
        kept, most = [], self.added + spare(self.pid) - RESERVE - HUGE  # each is copied to a new one
        for i in part.tolist():
            own, missing, doubt = doubts(self.words(int(self.address[i]), 1), self.zero)
            adds = PAGE * max(int(self.holes[i]), int(missing[0]))
            if doubt.any():
                self.refused[DOUBTS[int(doubt.argmax())]] += 1
            elif not own.any() or self.added + adds > min(self.memory, most):
                bound = "beyond --memory" if self.added + adds > self.memory else SHORT
                self.refused[bound if own.any() else "given back by the program"] += 1
            else:
                self.added += adds
                kept.append(i)
        return np.array(kept, np.int64)

    def split(self, chosen: np.ndarray) -> None:
        """Make 4 KiB pages of blocks; a part of a huge page that is said to be cold splits it, or later."""
        self.find_theirs()
        for _ in range(3):
            for address in self.address[chosen[self.huge()[chosen]]].tolist():
                if address not in self.theirs:
                    self.advise(address + PAGE, PAGE, MADV_COLD)
        self.refill(chosen)

    def refill(self, chosen: np.ndarray) -> None:
        """Pages of their own for blocks that are split, where they had them.

        Linux 6.12 and newer map those that hold only zeros to the kernel's page of zeros, and free them
        (try_to_map_unused_to_zeropage in mm/migrate.c): a heap touched in advance would be gone.
        """
        for i in chosen.tolist():
            start, words = int(self.address[i]), self.words(int(self.address[i]), 1)[0]
            gone = (words & PRESENT != 0) & (words & FRAME == np.uint64(self.zero))
            pages = np.flatnonzero(gone & (np.unpackbits(self.filled[i]) > 0))
            if len(pages) and spare(self.pid) < RESERVE + len(pages) * PAGE:
                self.refused[SHORT] += 1
                continue
            for address in (start + PAGE * pages).tolist():
                # made writable, and so allocated, but not written: at our address PAGE nothing can be read
                ours, theirs = (struct.pack("QQ", base, 1) for base in (PAGE, address))
                kernel.process_vm_writev(self.pid, ours, ctypes.c_ulong(1), theirs, ctypes.c_ulong(1), 0)

    def all(self) -> np.ndarray:
        return np.arange(len(self.address))

    def restore(self) -> np.ndarray:
        """Huge is what was huge, small what was small; bool[B]: blocks that are not so after all."""
        self.split(np.flatnonzero(~self.was_huge))
        self.refill(lost := np.flatnonzero(self.was_huge & ~self.huge()))  # of zeros alone, all is gone
        self.collapse(lost)
        return self.changed()

    def changed(self) -> np.ndarray:
        """bool[B]: blocks that are not as found."""
        return np.asarray((self.huge() != self.was_huge) & ~np.isin(self.address, [*self.theirs]))


def must_be_made(blocks: Blocks, made: int) -> int:
    """How many of the blocks became huge; PartialDataError for none."""
    if not made:
        raise pt.errors.PartialDataError(f"PID {blocks.pid}: no block became huge; {counted(blocks.refused)}")
    return made


def counted(whys: Counter[str]) -> str:
    return "; ".join(f"{pt.errors.plural(count, 'block')}: {why}" for why, count in whys.most_common())


def to_undo(pid: int) -> str:
    return f"{pt.errors.as_root(anywhere=True)} hugepages {pid} --undo"


@contextmanager
def at_once() -> Iterator[None]:
    """A call that no program of usual priority delays: the process waits for the lock that it holds."""
    policy, priority = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(OSError):  # where a control group leaves no real time
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, priority)


def must_be_root() -> None:
    needed = {"CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23}
    if lacking := ", ".join(name for name, number in needed.items() if not held(number)):
        raise pt.UsageError(f"page sizes of a process: run as root, with {lacking}")


# As found: in a file, for after a kill -9, and at the end of a block of code.


class Found(msgspec.Struct):
    """How Blocks were found, `since` ticks after the boot. blocks, huge: addresses; filled: hex."""

    since: int
    blocks: list[int]
    huge: list[int]
    filled: dict[int, Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]]
    frames: dict[int, int] = {}

    def write(self, path: Path) -> None:
        with pt.formats.atomic_write(path) as file:
            file.write(msgspec.json.encode(self))


def read_found(path: Path) -> Found:
    try:
        return pt.safe_files.json_struct(path.read_bytes(), Found)
    except pt.safe_files.Undecodable as error:
        why = f"{error.why}; remove the file, and the pages of that PID stay as they are"
        raise pt.errors.InputError(path, error.field, error.value, why) from None


def record_of(blocks: Blocks) -> Found | None:
    """How this very process was found, or one that it was forked from, by the frames that it has of that."""
    if blocks.record.exists():
        return read_found(blocks.record)
    huge = blocks.address[blocks.was_huge].tolist()
    for path in pt.live.RECORDS.glob("*.json"):
        with suppress(pt.errors.InputError, OSError):
            found = read_found(path)
            known = {at: found.frames[at] for at in huge if at in found.frames}
            same = [at for at, frame in known.items() if blocks.frame(at) == frame]
            if blocks.started >= found.since and 2 * len(same) > len(known):
                return found
    return None


def write_found(blocks: Blocks, but_huge: bool = False) -> Found:
    """Record how it was found, `but_huge`: where those stay so; what an older record says is left in it."""
    since = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    found = record_of(blocks) or Found(since, [], [], {})
    others = ~np.isin(blocks.address, found.blocks) & ~(blocks.was_huge & but_huge)
    found.blocks += blocks.address[others].tolist()
    found.huge += blocks.address[others & blocks.was_huge].tolist()
    gaps = np.flatnonzero(others & (blocks.holes > 0)).tolist()
    found.filled |= {int(blocks.address[i]): blocks.filled[i].tobytes().hex() for i in gaps}
    found.write(blocks.record)
    return found


def undo(blocks: Blocks) -> dict[int, str]:
    """{PID: blocks not as found after all} of it and of children forked since; {}: none is recorded."""
    if not (found := record_of(blocks)):
        return {}
    ours = np.isin(blocks.address, found.blocks)
    blocks.address, blocks.holes = blocks.address[ours], blocks.holes[ours]
    blocks.was_huge = np.isin(blocks.address, found.huge)
    bits = [bytes.fromhex(found.filled.get(at, "ff" * 64)) for at in blocks.address.tolist()]
    blocks.filled = np.frombuffer(b"".join(bits), np.uint8).reshape(-1, SLOTS // 8)
    blocks.frames = found.frames
    wrong = not_as_found(blocks, blocks.restore(), found)
    if not wrong[blocks.pid]:
        blocks.record.unlink(missing_ok=True)
    return wrong


def not_as_found(blocks: Blocks, wrong: np.ndarray, found: Found) -> dict[int, str]:
    """{PID: blocks not as found} of it (bool[B]) and of children forked since, who get a record each."""
    said = {blocks.pid: not_undone(blocks, wrong)}
    for child in descendants(blocks.pid):
        with suppress(pt.errors.PtanalyzeError), ExitStack() as stack:
            theirs = Blocks(stack, child, 0)
            huge = theirs.was_huge & np.isin(theirs.address, [*{*found.blocks} - {*found.huge}])
            if huge.any() and theirs.started >= found.since:
                if not theirs.record.exists():
                    found.write(theirs.record)
                said[child] = not_undone(theirs, huge, "its child: gone as that ends; if it stays, ")
    return said


def not_undone(blocks: Blocks, wrong: np.ndarray, then: str | None = None) -> str:
    """Which blocks (bool[B]) are not as found, and what to type when (`then`; None: as they are shared, or
    at once); "" for none."""
    if then is None:
        each = (doubts(blocks.words(at, 1), blocks.zero)[2][0, -1] for at in blocks.address[wrong].tolist())
        then = "shared until the other process ends or writes to them; if it is still there then, "
        then *= any(each)
    count = pt.errors.plural(int(wrong.sum()), "block")
    text = f"{count} of {pt.live.called(blocks.pid)}, {then}undo with: {to_undo(blocks.pid)}"
    return text if wrong.any() else ""


def state(left: list[str]) -> str:
    return f"not as found: {'; '.join(left)}" if left else "its pages are as found"


@contextmanager
def undone(blocks: Blocks, kept: bool = False) -> Iterator[list[str]]:
    """A block of code after which pages are as found, however it ends: SIGINT, SIGTERM and SIGHUP, too.

    kept  if it ends well, they stay as it made them, and the record for `undo` stays
    Gives a list of what is not as found afterwards.
    """
    is_new, left = not blocks.record.exists(), list[str]()
    blocks.frames = (found := write_found(blocks, kept)).frames
    with pt.live.ends_once():
        try:
            yield left
            if kept:
                found.write(blocks.record)
                return
        except BaseException:
            kept = False
            raise
        finally:
            if not kept:
                try:
                    blocks.restore()
                except KeyboardInterrupt:
                    blocks.restore()
                    raise
                finally:
                    if alive(blocks.pid):
                        wrong = not_as_found(blocks, blocks.changed(), found)
                        left += filter(None, wrong.values())
                        if is_new and not wrong[blocks.pid]:
                            blocks.record.unlink()
                    elif found.frames:  # children may live on
                        found.write(blocks.record)
                    else:
                        blocks.record.unlink()
