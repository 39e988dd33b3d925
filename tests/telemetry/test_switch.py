"""`instrument`: when spans are made, and when not."""

from __future__ import annotations

import sys
import threading

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import agentnb
from agentnb import Reply, ScriptedProvider, Session
from agentnb.core import observers
from agentnb.core.errors import MissingExtra
from agentnb.core.types import AgentStatus
from agentnb.telemetry import switch
from agentnb.telemetry.watcher import Watcher
from agentnb.testing import Hold
from tests.support import run_python
from tests.telemetry.spans import AGENT, CHAT, RUN, Seen, attributes, error_of


def session_of(*replies: str | Reply) -> Session:
    return Session(provider=ScriptedProvider(replies), store=None)


def test_twice_is_once(seen: Seen) -> None:
    other = Seen()

    assert agentnb.instrument(other.provider) is seen.end
    session_of("ok").run_sync("ask")

    assert len(seen.of(RUN)) == 1
    assert other.all == []


def test_ended_means_no_more_spans_until_it_is_called_again(seen: Seen) -> None:
    session_of("ok").run_sync("ask")
    seen.end()
    seen.end()
    session_of("ok").run_sync("ask")
    before = len(seen.of(RUN))

    end = agentnb.instrument(seen.provider)
    session_of("ok").run_sync("ask")
    end()

    assert (before, len(seen.of(RUN))) == (1, 2)
    assert observers._observers == ()
    assert [t for t in threading.enumerate() if t.name == "agentnb-telemetry"] == []


def test_ending_it_ends_what_is_open(seen: Seen) -> None:
    hold = Hold()
    run = session_of(Reply("half", pause=hold)).spawn("ask")
    hold.wait()

    seen.end()
    found = seen.all
    hold.release()
    run.result()

    assert seen.all == found
    assert {attributes(each).get("agentnb.status") for each in seen.of(AGENT) + seen.of(RUN)} == {
        "running"
    }
    assert error_of(seen.one(RUN)) is error_of(seen.one(AGENT)) is None
    assert len(seen.of(CHAT)) == 1


def test_run_that_began_before_is_not_seen(seen: Seen) -> None:
    seen.end()
    hold = Hold()
    run = session_of(Reply("half", pause=hold)).spawn("ask")
    hold.wait()

    end = agentnb.instrument(seen.provider)
    hold.release()
    run.result()
    end()

    assert seen.all == []


def test_without_a_tracer_provider_no_run_is_looked_at() -> None:
    end = agentnb.instrument()
    try:
        session_of("ok").run_sync("ask")
        assert [t for t in threading.enumerate() if t.name == "agentnb-telemetry"] == []
    finally:
        end()


def test_missing_extra_is_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.startswith(("opentelemetry", "agentnb.telemetry.watcher")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.util.genai", None)

    with pytest.raises(MissingExtra, match=r"pip install 'agentnb\[otel\]'"):
        agentnb.instrument()


def test_broken_processor_fails_no_run(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SimpleSpanProcessor):
        def on_end(self, span: object) -> None:
            raise RuntimeError("broken")

    seen.provider.add_span_processor(Broken(seen.exporter))

    assert session_of("ok").run_sync("ask").output == "ok"
    assert "The spans of a run could not be made." in caplog.text


def test_interrupt_of_the_wait_at_exit_is_silent(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[AgentStatus] = []

    def end(_: Watcher, status: AgentStatus) -> None:
        waited.append(status)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Watcher, "end", end)
        switch._end_at_exit()
    seen.end()

    assert waited == [AgentStatus.INTERRUPTED]


def test_end_of_the_process_ends_open_spans_and_a_fork_makes_its_own() -> None:
    said = run_python(
        """
        import os, warnings
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
        import agentnb
        from agentnb import Reply, ScriptedProvider, Session
        from agentnb.testing import Hold

        class Prints(SpanExporter):
            def export(self, spans):
                for span in spans:
                    kind = span.attributes.get("agentnb.status", "call")
                    print(who, span.name, kind, span.attributes.get("error.type"), flush=True)

        who = "parent"
        agentnb.instrument()  # before there is a provider
        Session(provider=ScriptedProvider(["ok"]), store=None).run_sync("not seen")
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(Prints()))
        trace.set_tracer_provider(provider)
        Session(provider=ScriptedProvider(["ok"]), store=None).run_sync("seen")
        provider.force_flush()
        warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
        child = os.fork()
        if child == 0:
            who = "child"
            Session(provider=ScriptedProvider(["ok"]), store=None).run_sync("in the fork")
            provider.force_flush()
            os._exit(0)
        os.waitpid(child, 0)
        agentnb.instrument()()
        agentnb.instrument()  # after it
        hold = Hold()
        Session(provider=ScriptedProvider([Reply("half", pause=hold)]), store=None).spawn("open")
        hold.wait()
        """,
        debug=False,
    )

    whole = ["chat scripted call None", "invoke_agent root completed None"]
    whole.append("invoke_workflow completed None")
    assert said.splitlines() == [
        *(f"parent {line}" for line in whole),
        *(f"child {line}" for line in whole),
        "parent chat scripted call interrupted",
        "parent invoke_agent root interrupted interrupted",
        "parent invoke_workflow interrupted interrupted",
    ]
