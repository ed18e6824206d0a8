"""Blocks of sizes that tell which line has made them."""
import threading

def build(count):
    keep = []
    for _ in range(count):
        keep.append(bytearray(5000))
    return keep


def produce():
    for _ in range(50):
        yield bytearray(3000)


class A:
    def method(self):
        return [bytearray(7000) for _ in range(20)]


def main():
    keep = []
    keep.append(build(300))
    keep.append(list(produce()))
    keep.append(A().method())
    keep.append(sorted(range(5), key=lambda _: len(bytearray(9000))))

    def in_thread():
        for _ in range(10):
            keep.append(bytearray(11000))

    return keep, threading.Thread(target=in_thread)


kept, thread = main()
thread.start()
thread.join()
