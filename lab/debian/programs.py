"""What programs-test.sh needs of Python: a client of memcached and of redis-server, and a program with a large dict.

usage: programs.py fill-memcached PORT     sets all keys
       programs.py sum-memcached PORT      reads all keys, and prints a checksum of their values
       programs.py ask PORT redis|memcached   asks for the hot keys, one after the other, until it is stopped
       programs.py hold DIR                holds a dict of which little is in use. Where DIR/ask exists it writes a checksum to DIR/sum
"""

import os
import socket
import sys
import time
import zlib

KEYS = 90_000
HOT = 1_800
ENTRIES = 250_000
HOT_ENTRIES = 5_000


def value(key):
    return f"value {key} of memcached, ".encode() * 30


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.replies = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)


def fill_memcached(port):
    to = Connection(port)
    for first in range(0, KEYS, 500):
        keys = range(first, min(first + 500, KEYS))
        to.send(b"".join(b"set key%d 0 0 %d noreply\r\n%s\r\n" % (key, len(value(key)), value(key)) for key in keys))
    to.send(b"version\r\n")
    assert to.replies.readline().startswith(b"VERSION")


def values(to, keys):
    to.send(b"get " + b" ".join(b"key%d" % key for key in keys) + b"\r\n")
    while (line := to.replies.readline()) != b"END\r\n":
        words = line.split()
        assert words[0] == b"VALUE", line
        yield to.replies.read(int(words[3]) + 2)


def sum_memcached(port):
    to, total, found = Connection(port), 0, 0
    for first in range(0, KEYS, 100):
        for each in values(to, range(first, min(first + 100, KEYS))):
            total, found = zlib.crc32(each, total), found + 1
    print(found, total)


def ask(port, program):
    to = Connection(port)
    while True:
        for first in range(0, HOT, 20):
            keys = range(first, first + 20)
            if program == "memcached":
                list(values(to, keys))
            else:
                to.send(b"".join(b"GET key:%d\r\n" % key for key in keys))
                for _ in keys:
                    to.replies.read(int(to.replies.readline()[1:]) + 2)
            time.sleep(0.02)


def hold(at):
    held = {f"entry {n}": f"what belongs to {n}, " * 12 for n in range(ENTRIES)}
    hot = [f"entry {n}" for n in range(HOT_ENTRIES)]
    asked, answer = os.path.join(at, "ask"), os.path.join(at, "sum")
    open(os.path.join(at, "ready"), "w").close()
    while True:
        sum(len(held[key]) for key in hot)
        time.sleep(0.2)
        if os.path.exists(asked):
            total = 0
            for key, text in held.items():
                total = zlib.crc32(text.encode(), zlib.crc32(key.encode(), total))
            os.remove(asked)
            with open(answer + ".part", "w") as file:
                print(len(held), total, file=file)
            os.rename(answer + ".part", answer)


match sys.argv[1:]:
    case ["fill-memcached", port]:
        fill_memcached(int(port))
    case ["sum-memcached", port]:
        sum_memcached(int(port))
    case ["ask", port, ("redis" | "memcached") as program]:
        ask(int(port), program)
    case ["hold", at]:
        hold(at)
    case _:
        sys.exit(__doc__)
