# Serves moto until stdin ends, which it does with the test.
import os
import sys
import threading


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end_with_stdin, daemon=True).start()
from moto.server import main  # noqa: E402

main(["-H", "127.0.0.1", "-p", os.environ["PORT"]])
