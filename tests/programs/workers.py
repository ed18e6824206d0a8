"""Threads, then processes (by fork and by spawn), all of which build and drop objects."""
import multiprocessing
import threading


def build(seed):
    table = {}
    for i in range(20000):
        table[f"{seed}-{i % 3000}"] = [seed, i, "x" * (i % 200)]
    return sum(len(v[2]) for v in table.values())


def main():
    sums = [0] * 4

    def run(k):
        sums[k] = build(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(sums)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(3) as pool:
            print(method, pool.map(build, range(6)))


if __name__ == "__main__":
    main()
