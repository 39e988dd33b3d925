"""A small MCP server over stdio, by hand: it starts at once, and can do everything wrong.

`python server.py [WORD...]`. A word says what is wrong with it; `log=FILE` has it write down each
message that it gets. It imports nothing but the standard library.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
"""A picture of one pixel."""
WORDS = {word.partition("=")[0]: word.partition("=")[2] for word in sys.argv[1:]}
_writing = threading.Lock()
_cancelled: dict[object, threading.Event] = {}
_tools: list[dict[str, Any]] = []


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def write(line: str) -> None:
    with _writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def note(what: str) -> None:
    if "log" in WORDS:
        with Path(WORDS["log"]).open("a", encoding="utf-8") as file:
            file.write(what + "\n")


def tool(name: str, **about: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **about}


def read_only(name: str, **about: Any) -> dict[str, Any]:
    return tool(name, annotations={"readOnlyHint": True}, **about)


def first_tools() -> list[dict[str, Any]]:
    if "broken-tools" in WORDS:
        return [
            read_only("odd") | {"inputSchema": {"type": "array"}},
            {"inputSchema": {"type": "object"}},
            read_only("echo", outputSchema={"type": "object", "required": ["count"]}),
            read_only("wait", outputSchema={"type": "nonsense"}),
            tool("steps", annotations={"readOnlyHint": "perhaps"}),
        ]
    if "bad-list" in WORDS:
        return [
            read_only("echo"),
            tool("bare", inputSchema={"type": "object"}),
            tool("echo", description="The second of this name."),
            tool("a.b/c"),
            tool("a_b_c"),
            tool("x" * 100, description="y" * 10_000),
        ]
    return [
        read_only("echo"),
        tool("write"),
        tool("erase", annotations={"destructiveHint": True}),
        read_only("where"),
        read_only("steps"),
        tool("sleep"),
        read_only("wait"),
        tool("grow"),
        tool("shrink"),
        tool("die"),
        read_only("everything"),
        read_only("fail"),
        read_only("big"),
        read_only("garbage"),
        tool("stop_reading"),
        tool("child"),
    ]


def call(id: object, params: dict[str, Any]) -> None:
    name, arguments = params["name"], params.get("arguments") or {}
    text = str(arguments.get("text", ""))
    if name not in {each.get("name") for each in _tools}:
        send({"id": id, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})
        return
    note(f"call {name} {text}")
    match name:
        case "where":
            text = json.dumps({"pid": os.getpid(), "value": os.environ.get("OF_THE_SERVER")})
        case "steps":
            token = (params.get("_meta") or {}).get("progressToken")
            for step in (1, 2):
                about = {"progressToken": token, "progress": step, "total": 2, "message": "going"}
                send({"method": "notifications/progress", "params": about})
        case "sleep" | "wait" if "awake" not in WORDS:
            if _cancelled[id].wait(600):
                note(f"cancelled {name}")
                return
        case "grow":
            _tools.append(tool("grown"))
            send({"method": "notifications/tools/list_changed"})
        case "shrink":
            _tools[:] = [each for each in _tools if each["name"] != "write"]
            send({"method": "notifications/tools/list_changed"})
        case "die":
            sys.stderr.write("the disk is full\n")
            os._exit(3)
        case "big":
            text = "z" * 10_000_000
        case "echo" if "odd-answers" in WORDS:
            send({"id": id, "result": None})
            return
        case "write" | "erase" if "odd-answers" in WORDS:
            words = "no more today" if name == "write" else ""
            send({"id": id, "error": {"code": -32000, "message": words}})
            return
        case "garbage":
            for line in ("not json", "{", '{"jsonrpc": "1.0"}', "[]", "\x00\xff", ""):
                write(line)
        case "child":
            text = str(subprocess.Popen(["sleep", "600"]).pid)
        case "everything":
            send({"id": id, "result": everything()})
            return
    content = [{"type": "text", "text": text or "done"}]
    send({"id": id, "result": {"content": content, "isError": name == "fail"}})


def everything() -> dict[str, Any]:
    data = base64.b64encode(bytes(12_345)).decode()
    blob = {"uri": "file:///a.bin", "mimeType": "application/pdf", "blob": data}
    return {
        "content": [
            {"type": "text", "text": "Look:"},
            {"type": "image", "mimeType": "image/png", "data": data},
            {"type": "image", "mimeType": "image/png", "data": DOT},
            {"type": "audio", "mimeType": "audio/wav", "data": data},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "A file."}},
            {"type": "resource", "resource": blob},
            {"type": "resource_link", "name": "b", "uri": "file:///b.txt", "description": "B."},
        ],
        "structuredContent": {"answer": [1, 2]},
    }


def answer(message: dict[str, Any]) -> None:
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    note(str(method))
    match method:
        case "initialize" if "refuses" in WORDS:
            send({"id": id, "error": {"code": -32000, "message": "the licence has ended"}})
        case "initialize":
            version = params["protocolVersion"]
            about = {"name": "tests", "version": "1"}
            able = {"tools": {"listChanged": True}}
            result = {"protocolVersion": version, "serverInfo": about, "capabilities": able}
            send({"id": id, "result": result})
        case "tools/list":
            # Two pages, as a large server has.
            half = len(_tools) // 2
            if "breaks-protocol" in WORDS:
                send({"id": id, "result": {"tools": "many"}})
                return
            page = _tools[half:] if params.get("cursor") else _tools[:half]
            more = {} if params.get("cursor") else {"nextCursor": "half"}
            send({"id": id, "result": {"tools": page, **more}})
        case "tools/call" if params["name"] == "stop_reading":
            os.close(0)  # here: in a thread, the read that waits would hold it open
        case "tools/call":
            _cancelled[id] = threading.Event()
            threading.Thread(target=call, args=(id, params), daemon=True).start()
        case "notifications/cancelled":
            note(f"cancelled {params.get('reason')}")
            if (event := _cancelled.get(params["requestId"])) is not None:
                event.set()
        case _ if id is not None:
            send({"id": id, "error": {"code": -32601, "message": "Method not found"}})


def flood(into: Callable[[str], object]) -> None:
    for _ in range(700):
        into("flood " * 2_000 + "\n")


def main() -> None:
    note(f"started {os.getpid()}")
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "dies-at-start" in WORDS:
        sys.exit("there is no configuration")
    if "hangs-at-start" in WORDS:
        sys.stderr.write("waiting for the database\n")
        time.sleep(600)
    if "waits-at-start" in WORDS:
        sys.stderr.write("waiting for the database\n")
        sys.stdin.read()
        return
    if "floods" in WORDS:
        streams = (sys.stdout, sys.stderr)
        floods = [threading.Thread(target=flood, args=(stream.write,)) for stream in streams]
        for each in floods:
            each.start()
        for each in floods:
            each.join()  # it answers when all of that was read
    if "has-child" in WORDS:
        child = subprocess.Popen(["sleep", "600"])
        note(f"child {child.pid}")
    _tools[:] = first_tools()
    try:
        for line in sys.stdin:
            answer(json.loads(line))
    except (ValueError, OSError):
        pass  # its input was closed under it
    if "stubborn" in WORDS or "stop_reading" in WORDS:
        note("stays")
        time.sleep(600)
    note("end of input")


if __name__ == "__main__":
    main()
