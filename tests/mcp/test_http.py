"""A server that is reached by streamable HTTP, on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb.core.errors import McpServerFailed, RunCancelled
from agentnb.core.events import ToolCallReported
from agentnb.tools.mcp.server import McpServer
from tests.mcp.scene import called, results, session_with, until, use
from tests.support import DEADLINE_S

HTTP_KEY = "a-key-for-the-web"


class Web:
    """A server by hand: results come as JSON, those of `steps` and `wait` as a stream of events."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.session = 0
        self.key = ""
        self.headers: list[dict[str, str]] = []
        self.is_over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._send(405, "text/plain", b"")

            def do_DELETE(self) -> None:
                outer.methods.append("DELETE")
                self._send(200, "text/plain", b"")

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                outer.answer(self, json.loads(self.rfile.read(length)))

            def _send(self, status: int, kind: str, body: bytes, **more: str) -> None:
                self.send_response(status)
                for name, value in {"content-type": kind, **more}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(body)))
                self.send_header("connection", "close")  # so that `stop` leaves none open
                self.close_connection = True
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"

    def answer(self, to: Any, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params", {})
        self.methods.append(method)
        self.headers.append({name.lower(): value for name, value in to.headers.items()})
        if self.key not in to.headers.get("authorization", ""):
            to._send(401, "text/plain", b"")
            return
        known = to.headers.get("mcp-session-id", str(self.session))
        if known != str(self.session) and method != "initialize":
            to._send(404, "text/plain", b"")
            return
        if "id" not in message:
            to._send(202, "application/json", b"")
            return
        more = {}
        match method, params.get("name"):
            case "initialize", _:
                result: dict[str, Any] = {
                    "protocolVersion": params["protocolVersion"],
                    "serverInfo": {"name": "web", "version": "1"},
                    "capabilities": {"tools": {}},
                }
                more = {"mcp-session-id": str(self.session)}
            case "tools/list", _:
                schema = {"type": "object"}
                names = ("echo", "steps", "wait", "broken")
                tools = [{"name": name, "inputSchema": schema} for name in names]
                result = {"tools": [*tools, {"name": "odd"}]}  # the last one breaks the protocol
            case "tools/call", "echo":
                text = params["arguments"]["text"]
                result = {"content": [{"type": "text", "text": text}]}
            case "tools/call", "steps" | "wait":
                self._stream(to, message)
                return
            case "tools/call", _:
                to._send(500, "text/plain", b"no")
                return
            case _:
                to._send(404, "text/plain", b"")
                return
        body = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        to._send(200, "application/json", json.dumps(body).encode(), **more)

    def _stream(self, to: Any, message: dict[str, Any]) -> None:
        token = message["params"]["_meta"]["progressToken"]
        about = {"progressToken": token, "progress": 1, "total": 2}
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": about}
        result = {"content": [{"type": "text", "text": "done"}]}
        to.send_response(200)
        to.send_header("content-type", "text/event-stream")
        to.send_header("connection", "close")
        to.end_headers()
        to.close_connection = True

        def send(each: dict[str, Any]) -> None:
            to.wfile.write(f"event: message\ndata: {json.dumps(each)}\n\n".encode())
            to.wfile.flush()

        send(progress)
        if message["params"]["name"] == "wait":
            self.is_over.wait(DEADLINE_S)
        else:
            send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def stop(self) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def a_web() -> Iterator[Web]:
    web = Web()
    try:
        yield web
    finally:
        web.stop()


def reached(web: Web, **settings: Any) -> McpServer:
    return agentnb.mcp(url=web.url, name="web", **settings)


def test_tools_over_http_are_listed_called_and_report_their_progress() -> None:
    with (
        a_web() as web,
        session_with(reached(web), script=[use("web__echo"), use("web__steps"), "done"]) as session,
    ):
        run = session.spawn("Go.")
        assert results(run) == {"web__echo": "hi", "web__steps": "done"}
        tools = session.settings.provider.requests[0].tools  # type: ignore[union-attr]
        names = ["web__echo", "web__steps", "web__wait", "web__broken"]
        assert [spec.name for spec in tools] == names
        session.close()

        assert [e.event.text for e in run.events if isinstance(e.event, ToolCallReported)] == [
            "1 of 2"
        ]
        assert web.methods[-1] == "DELETE", "the server is told that it is needed no more"


def test_headers_are_sent_and_a_key_in_them_is_a_secret(tmp_path: Path) -> None:
    with a_web() as web:
        of = reached(web, headers={"Authorization": f"Bearer {HTTP_KEY}"})
        script = [use("web__echo", text=f"the key is {HTTP_KEY}"), "done"]
        with session_with(of, script=script) as session:
            run = session.spawn("Go.")
            run.result()
        run.to_json(tmp_path / "run.json")

    assert {each["authorization"] for each in web.headers} == {f"Bearer {HTTP_KEY}"}
    assert HTTP_KEY not in (tmp_path / "run.json").read_text(encoding="utf-8")
    assert HTTP_KEY not in repr(of)


def test_server_that_wants_another_key_is_told_with_its_status() -> None:
    with a_web() as web:
        web.key = "another-key"
        of = reached(web, headers={"Authorization": f"Bearer {HTTP_KEY}"})
        with session_with(of, script=["never"]) as session:
            with pytest.raises(McpServerFailed, match="HTTP 401 Unauthorized") as failed:
                session.run_sync("Go.")

    assert HTTP_KEY not in str(failed.value)


def test_error_of_the_server_is_an_error_result_and_the_next_call_goes_on() -> None:
    with a_web() as web:
        found = called("web__broken", "web__echo", of=reached(web))

    assert found["web__broken"].startswith("!The MCP server 'web'")
    assert found["web__echo"] == "hi"


def test_cancel_of_a_run_tells_the_server_and_waits_for_nothing() -> None:
    with a_web() as web, session_with(reached(web), script=[use("web__wait")]) as session:
        run = session.spawn("Go.")
        until(lambda: any(isinstance(e.event, ToolCallReported) for e in run.events), "progress")
        run.cancel()
        with pytest.raises(RunCancelled):
            run.result(DEADLINE_S)
        until(lambda: "notifications/cancelled" in web.methods, "word of the cancel")


def test_server_that_went_away_is_an_error_result_for_each_call() -> None:
    with a_web() as web:
        names = ("web__echo", "web__echo", "web__echo")

        def script(request: Any) -> Any:
            turn = len(request.messages) // 2
            if turn == 1:
                web.stop()
            return use(names[turn]) if turn < len(names) else "done"

        with session_with(reached(web), provider=agentnb.ScriptedProvider(script)) as session:
            run = session.spawn("Go.")
            run.result()

    calls = [(call.is_error, str(call.result)) for call in run.agent("root").tool_calls]
    assert calls[0] == (False, "hi")
    assert all(is_error and "'web' is gone" in text for is_error, text in calls[1:])


def test_server_that_was_restarted_is_connected_again() -> None:
    with a_web() as web:

        def script(request: Any) -> Any:
            said = len([message for message in request.messages if message.role == "assistant"])
            if said == 1:
                web.session += 1  # it knows nothing of the one before
            return use("web__echo") if said < 3 else "done"

        provider = agentnb.ScriptedProvider(script)
        with session_with(reached(web), provider=provider) as session:
            first = session.spawn("Go.")
            first.result()
            web.session += 1
            second = session.spawn("Go.")
            second.result()

    calls = [(call.is_error, str(call.result)) for call in first.agent("root").tool_calls]
    assert calls[0] == calls[2] == (False, "hi")
    assert "it has forgotten this session" in calls[1][1]
    assert second.output == "done", "its list was asked for by a new connection"


def test_no_proxy_is_asked_for_a_server_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with a_web() as web:
        assert called("web__echo", of=reached(web)) == {"web__echo": "hi"}


def test_address_where_nothing_answers_fails_the_run_before_a_model_is_asked() -> None:
    with a_web() as web:
        of = reached(web)
    with session_with(of, script=["never"]) as session:
        with pytest.raises(McpServerFailed, match="ConnectError"):
            session.run_sync("Go.")
