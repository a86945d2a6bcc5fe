"""Run a moto server on a free port that handles one request at a time.

moto's own server handles requests concurrently, and then its transactions are not atomic. The first line of output is the
port. The server ends when its standard input is closed, so it does not outlive its parent process.
"""

import io
import logging
import os
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

one_at_a_time = threading.Lock()
moto = DomainDispatcherApplication(create_backend_app)


def app(environ, start_response):
    # Read the body first, so that a request that is only partly sent does not block the others.
    length = int(environ.get("CONTENT_LENGTH") or 0)
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    with one_at_a_time:
        return [b"".join(moto(environ, start_response))]


def end_with_standard_input():
    sys.stdin.buffer.read()
    os._exit(0)


logging.getLogger("werkzeug").setLevel(logging.ERROR)
threading.Thread(target=end_with_standard_input, daemon=True).start()
server = make_server("127.0.0.1", 0, app, threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
