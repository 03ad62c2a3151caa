# Serves moto until stdin ends, which it does with the test.
import os
import sys
import threading


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end_with_stdin, daemon=True).start()
from moto.dynamodb.responses import DynamoHandler  # noqa: E402
from moto.server import main  # noqa: E402

# DynamoDB checks a condition and writes in one step. moto checks, then writes, in
# threads: two takers of one lease could both pass the check before either wrote.
one_at_a_time = threading.Lock()
call_action = DynamoHandler.call_action


def call_action_alone(self):
    with one_at_a_time:
        return call_action(self)


DynamoHandler.call_action = call_action_alone
main(["-H", "127.0.0.1", "-p", os.environ["PORT"]])
