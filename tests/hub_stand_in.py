"""A stand-in for the hub: the few requests that an upload makes, answered on this computer."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OWNER, TOKEN = "me", "hf_stand_in"


@dataclass
class StandIn:
    """What the hub has.

    Attributes:
        address: where it answers.
        files: the content of each file by model and path, as it was committed.
        private: whether each model was made as a private one.
        refusal: the status that it answers with; None answers properly.
    """

    address: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    refusal: int | None = None
    objects: dict[str, bytes] = field(default_factory=dict)

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        """The answer to a request."""
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path.endswith("/info/lfs/objects/batch"):
            return self._batch(json.loads(body))
        if path.startswith("/objects/"):
            self.objects[path.removeprefix("/objects/")] = body
            return {}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        name, _, what = path.removeprefix("/api/models/").rpartition("/main")[0].rpartition("/")
        if what == "preupload":
            return {"files": [self._mode(file) for file in json.loads(body)["files"]]}
        assert what == "commit", path
        return self._commit(name, [json.loads(line) for line in body.splitlines()])

    def _create(self, asked: dict[str, Any]) -> dict[str, Any]:
        name = f"{asked['organization'] or OWNER}/{asked['name']}"
        self.files.setdefault(name, {})
        self.private.setdefault(
            name, asked.get("visibility") == "private" or bool(asked.get("private"))
        )
        return {"url": f"{self.address}/{name}", "name": name}

    def _mode(self, file: dict[str, Any]) -> dict[str, Any]:
        mode = "lfs" if file["path"].endswith((".safetensors", ".png")) else "regular"
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}

    def _batch(self, asked: dict[str, Any]) -> dict[str, Any]:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.address}/objects/{one['oid']}"}}}
            for one in asked["objects"]
        ]
        return {"transfer": "basic", "objects": objects}

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                assert value["encoding"] == "base64"
                self.files[name][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                content = self.objects[value["oid"]]
                assert hashlib.sha256(content).hexdigest() == value["oid"]
                self.files[name][value["path"]] = content
            else:
                assert line["key"] == "header", line
        return {"commitUrl": f"{self.address}/{name}/commit/{'0' * 40}", "commitOid": "0" * 40}


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """A hub that answers until the block ends."""
    hub = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self._body()
            known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            signed = self.path.startswith("/objects/")  # no token goes to where the bytes are kept
            status = hub.refusal or (200 if known or signed else 401)
            answer = hub.answer(self.path, body) if status == 200 else {"error": "refused"}
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_PUT = do_POST  # noqa: N815

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
