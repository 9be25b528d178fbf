"""Congestion controllers in Python, in the simulator."""

from __future__ import annotations

import itertools
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Server

import sabul
from sabul import sim
from sabul.sim import Acked, IntervalReport, Limits, LossReport

# Names stay for the life of the process.
NAMES = (f"python-{number}" for number in itertools.count())


def registered(make: Callable[[], sim.Controller]) -> str:
    name = next(NAMES)
    sim.register(name, make)
    return name


def scenario(*names: str, transport: str = "sabul", **more: Any) -> dict[str, Any]:
    """One flow for each name on a path of 10 Mb/s and an RTT of 20 ms."""
    link = {"id": "bottleneck", "rate_mbps": 10.0, "delay_ms": 10.0, "queue_packets": 30}
    flows = [
        {"id": f"flow-{n}", "transport": transport, "cc": name, "path": ["bottleneck"]} for n, name in enumerate(names)
    ]
    return {"name": "python", "duration_s": 5.0, "seed": 1, "link": [link], "flow": flows, **more}


class Window:
    """A fixed window."""

    packets = 10.0
    gap_s: float | None = None

    def limits(self) -> Limits:
        return Limits(self.packets, self.gap_s)


class Aimd(Window):
    """Additive increase, multiplicative decrease once for all packets sent before."""

    recovery_end = -1

    def on_ack(self, acked: Acked) -> None:
        self.packets += acked.packets / self.packets

    def on_loss(self, loss: LossReport) -> None:
        if loss.first_lost > self.recovery_end:
            self.packets, self.recovery_end = max(self.packets / 2, 1), loss.largest_sent

    def on_timeout(self) -> None:
        self.packets = 1


def test_a_fixed_window_has_the_results_of_the_built_in_window() -> None:
    own, fixed = scenario(registered(Window)), scenario("fixed")
    fixed["flow"][0]["params"] = {"window_packets": 10}
    flows = [sim.run(one)["flows"][0] for one in (own, fixed)]
    # At most 10 packets of 1500 bytes in an RTT of 20 ms.
    assert 4.0e6 < flows[0]["goodput_bps"] < 6.0e6
    assert flows[0]["goodput_bps"] == flows[1]["goodput_bps"]
    assert flows[0]["packets_sent"] == flows[1]["packets_sent"]


def test_a_large_window_fills_the_link_and_a_gap_limits_the_rate() -> None:
    class Large(Window):
        packets = 30

    class Paced(Window):
        packets, gap_s = 1e9, 0.004

    results = [sim.run(scenario(registered(make)))["flows"][0]["goodput_bps"] for make in (Large, Paced)]
    assert results[0] > 9.0e6
    # A packet of about 1500 bytes every 4 ms.
    assert 2.5e6 < results[1] < 3.0e6


@pytest.mark.parametrize("transport", ["sabul", "tcp"])
def test_two_aimd_flows_share_a_link_and_a_seed_repeats_the_run(transport: str) -> None:
    name = registered(Aimd)
    shared = scenario(name, name, transport=transport, duration_s=20.0)
    results = [sim.run(shared, seed=3) for _ in range(2)]
    assert results[0]["flows"] == results[1]["flows"]
    assert results[0]["jain"] > 0.9
    assert sum(flow["goodput_bps"] for flow in results[0]["flows"]) > 8.5e6
    assert all(flow["packets_lost"] > 0 for flow in results[0]["flows"])


def test_the_runs_of_a_sweep_have_controllers_of_their_own() -> None:
    name = registered(Aimd)
    rates = [5, 10, 20]
    together = sim.sweep(scenario(name), settings={"link.bottleneck.rate_mbps": rates})
    alone = [sim.run(scenario(name), settings={"link.bottleneck.rate_mbps": rate}) for rate in rates]
    assert [result["flows"] for result in together] == [result["flows"] for result in alone]


def test_events_have_plausible_values_and_are_read_only() -> None:
    seen: list[Any] = []

    class Watch(Aimd):
        def on_ack(self, acked: Acked) -> None:
            seen.append(acked)
            super().on_ack(acked)

        def on_loss(self, loss: LossReport) -> None:
            seen.append(loss)
            super().on_loss(loss)

        def on_interval(self, report: IntervalReport) -> None:
            seen.append(report)

    sim.run(scenario(registered(Watch)))
    times = [event.now_s for event in seen]
    assert times == sorted(times) and 4.9 < times[-1] <= 5.0
    acks = [event for event in seen if isinstance(event, Acked)]
    assert sum(ack.packets for ack in acks) == acks[-1].total_packets > 3000
    newest, smoothed, least = acks[-1].rtt_s, acks[-1].smoothed_rtt_s, acks[-1].min_rtt_s
    assert newest is not None and smoothed is not None and least is not None
    assert 0.02 <= least <= min(newest, smoothed) < 0.1
    losses = [event for event in seen if isinstance(event, LossReport)]
    assert losses and all(0 < loss.first_lost <= loss.largest_sent for loss in losses)
    reports = [event for event in seen if isinstance(event, IntervalReport)]
    assert 400 < len(reports) <= 501
    assert sum(report.lost_packets for report in reports) == pytest.approx(sum(loss.packets for loss in losses), abs=5)
    for event in (acks[0], losses[0], reports[0]):
        with pytest.raises(AttributeError):
            setattr(event, "now_s", 1.0)  # noqa: B010


class Broken(Aimd):
    def on_ack(self, acked: Acked) -> None:
        if acked.total_packets > 100:
            raise ZeroDivisionError("no such rate")


@pytest.mark.parametrize("transport", ["sabul", "tcp"])
def test_an_exception_ends_the_run_and_is_the_cause_of_the_error(transport: str) -> None:
    name = registered(Broken)
    with pytest.raises(sabul.FailedError) as caught:
        sim.run(scenario(name, "cubic", transport=transport))
    text = str(caught.value)
    assert f"scenario 'python': controller '{name}' is at fault: after " in text
    assert "its on_ack raised ZeroDivisionError: no such rate" in text
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert cause.__traceback__ is not None and cause.__traceback__.tb_frame.f_code.co_name == "on_ack"
    # The failure leaves nothing behind.
    assert sim.run(scenario(registered(Window)))["flows"][0]["goodput_bps"] > 1e6


def test_the_error_of_a_sweep_names_the_run() -> None:
    with pytest.raises(sabul.FailedError, match="on_ack raised ZeroDivisionError") as caught:
        sim.sweep(scenario(registered(Broken)), settings={"seed": [1, 2]})
    assert "seed" in str(caught.value).split("controller")[0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (lambda: 10, "TypeError: limits returned <class 'int'>, not sabul.sim.Limits"),
        (lambda: None, "TypeError: limits returned <class 'NoneType'>"),
        (lambda: Limits(-1), "ValueError: window_packets: -1 is not allowed; use 1 to 1e9 packets"),
        (lambda: Limits(0.5), "window_packets: 0.5"),
        (lambda: Limits(math.nan), "window_packets: NaN"),
        (lambda: Limits(math.inf), "window_packets: inf"),
        (lambda: Limits("many"), "TypeError: must be real number, not str"),  # type: ignore[arg-type]
        (lambda: Limits(10, -0.1), "gap_s: -0.1 is not allowed; use 0 to 60 s, or None"),
        (lambda: Limits(10, math.nan), "gap_s: NaN"),
        (lambda: Limits(10, 61), "gap_s: 61"),
    ],
)
def test_unusable_limits_are_an_error_at_the_start_and_later(value: Callable[[], Any], words: str) -> None:
    class Late(Window):
        is_late = False

        def limits(self) -> Limits:
            return value() if self.is_late else super().limits()

        def on_ack(self, acked: Acked) -> None:
            self.is_late = True

    class Early(Late):
        is_late = True

    for make, at in ((Early, "0.000"), (Late, "0.0[1-9]")):
        with pytest.raises(sabul.FailedError, match=f"after {at}.* its limits raised .*{words}"):
            sim.run(scenario(registered(make)))


def test_a_class_that_cannot_be_made_is_an_error() -> None:
    class Needy(Window):
        def __init__(self, packets: int) -> None:
            self.packets = packets

    class Limitless:
        pass

    with pytest.raises(sabul.FailedError, match=r"its constructor raised TypeError: .*'packets'"):
        sim.run(scenario(registered(Needy)))  # type: ignore[arg-type]
    with pytest.raises(sabul.FailedError, match="its limits raised AttributeError"):
        sim.run(scenario(registered(Limitless)))  # type: ignore[arg-type]


def test_a_name_that_is_taken_or_invalid_is_a_usage_error() -> None:
    name = registered(Window)
    for taken in (name, "cubic", "sabul2003"):
        with pytest.raises(sabul.UsageError, match=f"{taken}.*no other controller has"):
            sim.register(taken, Window)
    with pytest.raises(sabul.UsageError, match="letters, digits"):
        sim.register("my own", Window)
    with pytest.raises(TypeError, match="has the type int; pass a class"):
        sim.register("number", 3)  # type: ignore[arg-type]
    with pytest.raises(sabul.UsageError, match="number"):
        sim.run(scenario("number"))


def test_a_transfer_refuses_the_name(server: Server, tmp_path: Path) -> None:
    name = registered(Window)
    sim.run(scenario(name))
    source = tmp_path / "file"
    source.write_bytes(b"content")
    with (
        sabul.connect(ticket_file=server.ticket) as session,
        pytest.raises(sabul.UsageError, match=f"controller.*{name}"),
    ):
        session.put(source, "", cc=name)
    assert not (server.root / "file").exists()


ENDLESS = """
import signal
import threading
from sabul import sim

# A parent that runs in the background may have SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

begins = threading.Event()

class Window:
    def limits(self):
        return sim.Limits(10)
    def on_ack(self, acked):
        begins.set()
        # Each line releases the GIL, so that the end of the interpreter falls into a method.
        print("runs", flush=True)

def run():
    link = {"id": "wire", "rate_mbps": 10.0, "delay_ms": 10.0, "queue_packets": 30}
    flow = {"id": "a", "transport": "sabul", "cc": "mine", "path": ["wire"]}
    sim.run({"name": "endless", "duration_s": 1e5, "link": [link], "flow": [flow]})

sim.register("mine", Window)
"""
INTERRUPTED = """
try:
    run()
except KeyboardInterrupt:
    pass
"""
IN_A_DAEMON = """
threading.Thread(target=run, daemon=True).start()
begins.wait()
"""


@pytest.mark.parametrize(("end", "is_interrupted"), [(INTERRUPTED, True), (IN_A_DAEMON, False)])
def test_the_interpreter_ends_during_a_simulation(end: str, is_interrupted: bool) -> None:
    # Several times, because the thread of the simulation is not always in a method.
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", ENDLESS + end], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdout.readline() == "runs\n"
        if is_interrupted:
            child.send_signal(signal.SIGINT)
        child.communicate(timeout=20)
        assert child.returncode == 0
