#!/usr/bin/env python3
"""Real services and runtimes, plain and recorded: the same results, nothing lost, every process named.

    bench/services.py [--keep FOLDER] [--heaptape FILE] [NAME…]

Each service is run twice, plainly and recorded, and must do the same both times: exit statuses, transactions,
bodies, pictures, class files. Each tape must have lost nothing, hold no order fault, pass `info --verify`, and name
only those processes as uncovered that are known to be. A table at the end says what was found; the exit status is 1
if anything was wrong.

Installs nothing: a service whose programs are missing says which Debian package has them, and is passed over. All
servers listen on 127.0.0.1 or on Unix sockets in temporary folders, and everything that was started is ended by its
pid. Builds the release binary first, unless --heaptape names one.
"""

import argparse
import hashlib
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 180  # seconds that one command may take


class Wrong(Exception):
    """A service did not do what it should, plainly or recorded."""


class Missing(Exception):
    """A program is not here; the Debian package that has it."""


def need(program, package, *places):
    found = shutil.which(program) or next((p for place in places for p in sorted(Path("/").glob(place))), None)
    if not found:
        raise Missing(package)
    return str(found)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def digest_of_files(folder, pattern):
    return {str(p.relative_to(folder)): digest(p.read_bytes()) for p in sorted(folder.rglob(pattern))}


class Run:
    """One run of a service, plain or recorded, in a folder of its own. What it starts, it ends."""

    def __init__(self, folder, heaptape=None):
        self.folder = folder
        self.heaptape = heaptape
        self.tapes = []
        self.started = []
        self.pids = set()  # processes that must be on the tapes
        self.log = folder / "log"

    def prefix(self, options=()):
        if not self.heaptape:
            return []
        tape = self.folder.parent / f"{self.folder.name}-{len(self.tapes) + 1}.tape"
        self.tapes.append(tape)
        return [self.heaptape, "record", "--quiet", "-o", tape, *options, "--"]

    def start(self, *command, cwd=None, env=None):
        """A server: recorded in a recorded run."""
        return self._start([*self.prefix(), *command], cwd, env)

    def _start(self, command, cwd, env, stdin=None):
        with open(self.log, "ab") as log:
            child = subprocess.Popen([str(c) for c in command], cwd=cwd or self.folder, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=log, env={**os.environ, **(env or {})})
        self.started.append(child)
        return child

    def recorded(self, *command, cwd=None, env=None, status=0, stdin=None):
        """A command that ends by itself, recorded in a recorded run: what it wrote."""
        return self._finish([*self.prefix(), *command], cwd, env, status, stdin)

    def client(self, *command, cwd=None, env=None, status=0, stdin=None):
        """A command that is never recorded: what it wrote."""
        return self._finish(list(command), cwd, env, status, stdin)

    def _finish(self, command, cwd, env, status, stdin):
        child = self._start(command, cwd, env, stdin)
        try:
            out, _ = child.communicate(stdin, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{command[0]} … {command[-1]} did not end within {LIMIT} s") from None
        if status is not None and child.returncode != status:
            raise Wrong(f"{' '.join(map(str, command))}: exit status {child.returncode}; {self.tail()}")
        return out

    def stop(self, child, how=signal.SIGTERM):
        """Ends a server by a signal to what was started, which heaptape hands on: its exit status."""
        child.send_signal(how)
        return self.ended(child)

    def ended(self, child):
        try:
            child.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise Wrong(f"pid {child.pid} did not end within {LIMIT} s; {self.tail()}") from None
        return child.returncode

    def until(self, is_ready, what, child):
        deadline = time.monotonic() + 60
        while not is_ready():
            if child.poll() is not None:
                raise Wrong(f"{what}: the server ended with {child.returncode}; {self.tail()}")
            if time.monotonic() > deadline:
                raise Wrong(f"{what}: not ready within 60 s; {self.tail()}")
            time.sleep(0.05)

    def tail(self):
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "stderr: " + " | ".join(lines[-6:]) if lines else "nothing on stderr"

    def end_all(self):
        for how, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            for child in self.started:
                if child.poll() is None:
                    child.send_signal(how)
            for child in self.started:
                try:
                    child.wait(patience)
                except subprocess.TimeoutExpired:
                    pass


# --- the services: each does its work by a Run and returns what must be the same both times ---------


def redis(run):
    """redis-server with threads for input and output, snapshots by fork, under redis-benchmark."""
    server, cli = need("redis-server", "redis-server"), need("redis-cli", "redis-tools")
    bench = need("redis-benchmark", "redis-tools")
    place = run.folder / "redis.sock"
    child = run.start(server, "--port", "0", "--unixsocket", place, "--dir", run.folder, "--save", "", "--appendonly", "yes",
                      "--auto-aof-rewrite-percentage", "0", "--io-threads", "2", "--enable-debug-command", "local")

    def ask(*words):
        return run.client(cli, "-s", place, *words).decode().strip()

    run.until(lambda: place.exists() and ask("ping") == "PONG", "redis", child)
    tests = "set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,lrange_100,mset"
    rows = run.client(bench, "-s", place, "-n", "10000", "-c", "30", "-P", "4", "--csv", "-t", tests).decode()
    done = [line.split(",")[0] for line in rows.splitlines()]
    # A copy of the server writes the snapshot, another rewrites the log.
    before = ask("lastsave")
    time.sleep(1)
    ask("bgsave")
    run.until(lambda: ask("lastsave") != before, "redis: a snapshot", child)
    ask("bgrewriteaof")
    run.until(lambda: "aof_rewrite_in_progress:0" in ask("info", "persistence"), "redis: rewriting the log", child)
    script = "for i = 1, 5000 do redis.call('set', 's' .. i, string.rep('x', i % 700)) end return redis.call('dbsize')"
    result = {"done": done, "keys": ask("eval", script, "0"), "digest": ask("debug", "digest")}
    run.client(cli, "-s", place, "shutdown", "nosave", status=None)
    result["exit"] = run.ended(child)
    return result


def postgres(run):
    """initdb, and a server with parallel workers under pgbench: root records, another user runs it."""
    place = "usr/lib/postgresql/*/bin/"
    programs = {p: need(p, "postgresql", place + p) for p in ("initdb", "postgres", "pgbench", "psql", "pg_ctl")}
    user, data, sockets = other_user("postgres"), run.folder / "data", run.folder
    give_away(run.folder, user)
    run.recorded(*user.runs(), programs["initdb"], "-D", data, "--no-sync", "-A", "trust", "-U", "bench", "--locale", "C.UTF-8")
    settings = ["-c", "listen_addresses=", "-c", f"unix_socket_directories={sockets}", "-c", "max_connections=120", "-c", "fsync=off",
                "-c", "log_connections=on", "-c", "log_line_prefix=%p ",
                "-c", "min_parallel_table_scan_size=0", "-c", "parallel_setup_cost=0", "-c", "parallel_tuple_cost=0",
                "-c", "jit=off", "-c", "max_parallel_workers_per_gather=2"]
    child = run.start(*user.runs(), programs["postgres"], "-D", data, *settings)
    at = ["-h", sockets, "-U", "bench"]
    run.until((sockets / ".s.PGSQL.5432").exists, "postgres", child)

    def sql(text):
        return run.client(programs["psql"], *at, "-d", "postgres", "-v", "ON_ERROR_STOP=1", "-At", "-c", text).decode()

    run.until(lambda: run.client(programs["psql"], *at, "-d", "postgres", "-Atc", "select 1", status=None) == b"1\n", "postgres", child)
    bench = [programs["pgbench"], *at, "postgres"]
    run.client(*bench, "-i", "-s", "2", "-q")
    counted = re.compile(rb"actually processed: (\S+)")
    result = {
        "transactions": counted.findall(run.client(*bench, "-c", "8", "-j", "2", "-t", "150", "-n")),
        # A connection each, a new backend each.
        "reconnecting": counted.findall(run.client(*bench, "-C", "-c", "4", "-t", "40", "-n", "-S")),
        "many at once": counted.findall(run.client(*bench, "-c", "100", "-t", "4", "-n", "-S")),
        "parallel": sql("select count(*), sum(aid), sum(hashtext(filler)) from pgbench_accounts"),
        "sorted": sql("select md5(string_agg(x::text, ',' order by md5(x::text))) from generate_series(1, 30000) x"),
        "history": sql("select count(*) from pgbench_history"),
        "error": run.client(programs["psql"], *at, "-d", "postgres", "-c", "select 1/0", status=None),
        "vacuum": sql("vacuum analyze; "),
    }
    result["exit"] = run.stop(child, signal.SIGINT)
    run.pids = {int(line.split()[0]) for line in run.log.read_text().splitlines() if "connection received" in line}
    result["connections"] = len(run.pids) > 250
    return result


def nginx(run):
    """nginx: a master that drops its workers' rights, a reload under load, a proxy, compression, helper threads."""
    server, ab = need("nginx", "nginx-light", "usr/sbin/nginx"), need("ab", "apache2-utils")
    pages = run.folder / "pages"
    pages.mkdir()
    for name, size in (("small", 100), ("page", 20_000), ("large", 3_000_000)):
        (pages / f"{name}.html").write_bytes(bytes(33 + i * i % 90 for i in range(size)))
    front, back = free_ports(2)
    os.chmod(run.folder, 0o755)
    (run.folder / "nginx.conf").write_text(f"""
        {'user nobody nogroup;' if os.geteuid() == 0 else ''}
        worker_processes 3; daemon off; pid {run.folder}/pid; error_log {run.folder}/errors;
        events {{ worker_connections 256; }}
        http {{
            access_log {run.folder}/access; gzip on; gzip_types *; gzip_min_length 1; keepalive_requests 50;
            {''.join(f'{kind}_temp_path {run.folder}/{kind};' for kind in ('client_body', 'proxy', 'fastcgi', 'scgi', 'uwsgi'))}
            server {{ listen 127.0.0.1:{back}; root {pages}; types {{ text/html html; }} }}
            server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://127.0.0.1:{back}; proxy_buffering on; }} }}
        }}""")
    child = run.start(server, "-p", run.folder, "-c", run.folder / "nginx.conf", "-e", run.folder / "errors")

    def get(name, **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{front}/{name}", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    run.until(lambda: answers(front) and (run.folder / "pid").exists(), "nginx", child)
    master = int((run.folder / "pid").read_text())

    def load(count, name, *options):
        out = run.client(ab, "-q", "-n", str(count), "-c", "20", *options, f"http://127.0.0.1:{front}/{name}").decode()
        return re.findall(r"(Complete requests|Failed requests|Non-2xx responses|HTML transferred):\s+(\d+)", out)

    result = {
        "pages": [digest(get(f"{name}.html")) for name in ("small", "page", "large")],
        "compressed": digest(get("page.html", **{"Accept-Encoding": "gzip"})),
        "load": load(2000, "page.html", "-k"),
        "compressed load": load(400, "page.html", "-H", "Accept-Encoding: gzip"),
        "large load": load(60, "large.html"),
    }
    for _ in range(2):
        os.kill(master, signal.SIGHUP)
        time.sleep(0.5)
        result.setdefault("after reload", []).append(load(300, "small.html"))
    os.kill(master, signal.SIGQUIT)
    result["exit"] = run.ended(child)
    return result


def java(run):
    """javac of generated classes, and a program with threads and collections of garbage."""
    javac, java_ = need("javac", "default-jdk-headless"), need("java", "default-jdk-headless")
    sources = run.folder / "src"
    sources.mkdir()
    for i in range(40):
        methods = "".join(f"int m{j}(int x) {{ return x * {j} + new int[] {{{j}, {i}}}.length; }}\n" for j in range(60))
        (sources / f"C{i}.java").write_text(f"public class C{i} {{ java.util.List<String> all = new java.util.ArrayList<>();\n{methods}}}\n")
    (sources / "Main.java").write_text("""
        import java.util.*; import java.util.concurrent.*; import java.util.zip.*;
        public class Main { public static void main(String[] a) throws Exception {
            ExecutorService pool = Executors.newFixedThreadPool(16); List<Future<Long>> all = new ArrayList<>();
            for (int i = 0; i < 200; i++) { final int n = i; all.add(pool.submit(() -> {
                Map<String, byte[]> m = new HashMap<>(); CRC32 crc = new CRC32();
                for (int j = 0; j < 300; j++) { byte[] b = new byte[j * 31 % 5000]; m.put("k" + j % 40, b); }
                Deflater d = new Deflater(); d.setInput(new byte[20000 + n]); d.finish(); byte[] out = new byte[4000];
                crc.update(out, 0, d.deflate(out)); d.end(); return crc.getValue() + m.size(); })); }
            long sum = 0; for (Future<Long> f : all) sum += f.get(); pool.shutdown();
            for (int i = 0; i < 300; i++) { Thread t = new Thread(() -> new byte[1000].clone()); t.start(); if (i % 20 == 0) t.join(); }
            System.gc(); System.out.println(sum); System.exit(7); } }""")
    classes = run.folder / "classes"
    run.recorded(javac, "-d", classes, *sorted(sources.glob("*.java")))
    out = run.recorded(java_, "-Xmx256m", "-cp", classes, "Main", status=7)
    return {"classes": digest_of_files(classes, "*.class"), "out": out}


def node(run):
    """node: worker threads, child processes, and a cluster that serves pages."""
    node_ = need("node", "nodejs")
    script = run.folder / "main.js"
    script.write_text("""
        const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
        const cluster = require('cluster'), http = require('http'), zlib = require('zlib'), child = require('child_process');
        const crypto = require('crypto');
        if (cluster.isWorker) {
            http.createServer((q, r) => r.end(zlib.gzipSync('page ' + q.url.repeat(300)))).listen(process.env.PLACE);
        } else if (!isMainThread) {
            const rows = []; for (let i = 0; i < 20000; i++) rows.push({ i, s: 'x'.repeat(i % 60) });
            parentPort.postMessage(crypto.createHash('sha256').update(zlib.deflateSync(JSON.stringify(rows) + workerData)).digest('hex'));
        } else main();
        function get(path) { return new Promise((good, bad) => http.get({ socketPath: process.env.PLACE, path }, r => {
            const all = []; r.on('data', d => all.push(d)); r.on('end', () => good(zlib.gunzipSync(Buffer.concat(all)).length)); }).on('error', bad)); }
        async function main() {
            for (let round = 0; round < 3; round++) {
                const answers = await Promise.all([...Array(6).keys()].map(n => new Promise((good, bad) => {
                    const w = new Worker(__filename, { workerData: n }); w.on('message', good); w.on('error', bad); })));
                console.log(answers.join(' '));
            }
            console.log(child.execFileSync('sort', ['-r'], { input: 'a\\nc\\nb\\n' }).toString());
            for (let i = 0; i < 3; i++) cluster.fork();
            let ready = 0;
            cluster.on('listening', async () => { if (++ready < 3) return;
                let sum = 0; for (let i = 0; i < 30; i++) sum += (await Promise.all([...Array(10).keys()].map(n => get('/' + n + i)))).reduce((a, b) => a + b);
                console.log(sum); cluster.disconnect(() => process.exit(5)); });
        }""")
    return {"out": run.recorded(node_, script, env={"PLACE": str(run.folder / "http")}, status=5)}


def chromium(run, sandboxed=False):
    """Chromium without its sandbox, rendering a local page to a picture."""
    browser = need("chromium", "chromium")
    page, home, picture = run.folder / "page.html", run.folder / "home", run.folder / "picture.png"
    page.write_text("<body style='margin:0;background:#fed'><canvas id=c width=300 height=200></canvas><script>"
                    "let g = c.getContext('2d'); for (let i = 0; i < 3000; i++) { g.fillStyle = `rgb(${i % 256},${i * 7 % 256},9)`;"
                    "g.fillRect(i * 37 % 300, i * 53 % 200, 9, 5); }</script>")
    home.mkdir()
    user = other_user("nobody") if sandboxed else None
    if user:
        give_away(run.folder, user)
    command = [browser, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--window-size=400,300",
               f"--user-data-dir={home}/data", f"--screenshot={picture}", *([] if sandboxed else ["--no-sandbox"]), page.as_uri()]
    run.recorded(*(user.runs() if user else []), *command, env={"HOME": str(home)})
    return {"picture": digest(picture.read_bytes())}


def chromium_sandboxed(run):
    """Chromium with its sandbox, as a user who is not root."""
    return chromium(run, sandboxed=True)


SERVICES = {"redis": redis, "postgres": postgres, "nginx": nginx, "java": java, "node": node, "chromium": chromium,
            "chromium-sandboxed": chromium_sandboxed}

# Processes that may be named as uncovered, by service: what their reason must say.
UNCOVERED = {name: [r"(/chromium|/chrome_crashpad_handler|/proc/self/exe) .*defines malloc itself"] for name in ("chromium", "chromium-sandboxed")}


# --- what they use ------------------------------------------------------------------------------------


class OtherUser:
    """A user that a service runs as when we are root; ourselves otherwise."""

    def __init__(self, name):
        self.entry = pwd.getpwnam(name) if os.geteuid() == 0 else None

    def runs(self):
        if not self.entry:
            return []
        return [need("setpriv", "util-linux"), f"--reuid={self.entry.pw_uid}", f"--regid={self.entry.pw_gid}", "--clear-groups"]


def other_user(name):
    try:
        return OtherUser(name)
    except KeyError:
        return OtherUser("nobody")


def give_away(folder, user):
    if user.entry:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user.entry.pw_uid, user.entry.pw_gid)


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for one in held:
        one.close()
    return ports


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


# --- plain against recorded -------------------------------------------------------------------------


def once(service, folder, heaptape):
    folder.mkdir()
    folder.chmod(0o755)
    run = Run(folder, heaptape)
    began = time.monotonic()
    try:
        return run, service(run), time.monotonic() - began
    finally:
        run.end_all()


def check_tape(heaptape, tape, expected):
    """What `info` says of a tape, and what is wrong with it."""
    if not tape.exists():
        return None, [f"{tape.name} was not written"]
    asked = subprocess.run([heaptape, "info", "--json", "--verify", tape], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if asked.returncode:
        return None, [f"info --verify: {asked.stderr.decode().strip()}"]
    info = json.loads(asked.stdout)
    wrong = [f"{name} is {info[name]}" for name in ("lost", "order_faults", "unknown_frees") if info[name]]
    if not info["complete"]:
        wrong.append(f"the tape is incomplete: {info['ended']}")
    for process in info["uncovered"]:
        words = " ".join(process["command"])[:60] or "?"
        if not any(re.search(pattern, f"{words}: {process['why']}") for pattern in expected):
            wrong.append(f"not covered: pid {process['pid']} {words}: {process['why']}")
    return info, wrong


def compare(name, scratch, heaptape):
    """Runs a service both ways; its row of the table, and what was wrong."""
    service = SERVICES[name]
    _, plain, plain_time = once(service, scratch / f"{name}-plain", None)
    run, recorded, time_recorded = once(service, scratch / f"{name}-recorded", heaptape)
    wrong = [f"{key}: plain {plain[key]!r}, recorded {recorded.get(key)!r}" for key in plain if plain[key] != recorded.get(key)]
    infos = []
    for tape in run.tapes:
        info, faults = check_tape(heaptape, tape, UNCOVERED.get(name, ()))
        wrong += faults
        infos += [info] if info else []
    missing = run.pids - {p["pid"] for i in infos for p in i["processes"]}
    if missing and infos:
        wrong.append(f"{len(missing)} of {len(run.pids)} processes are not on the tape, as pid {min(missing)}")
    row = {
        "processes": sum(len(i["processes"]) for i in infos),
        "threads": sum(p["threads"] for i in infos for p in i["processes"]),
        "events": sum(i["events"] for i in infos),
        "lost": sum(i["lost"] for i in infos),
        "faults": sum(i["order_faults"] for i in infos),
        "unknown": sum(i["unknown_frees"] for i in infos),
        "uncovered": sum(len(i["uncovered"]) for i in infos),
        "time": f"{time_recorded / plain_time:.2f}",
    }
    reasons = [f"{' '.join(p['command'])[:50] or '?'}: {p['why']}" for i in infos for p in i["uncovered"]]
    return row, wrong, sorted({f"{reasons.count(r)} × {r}" for r in reasons})


def build():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "heaptape"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which services: " + ", ".join(SERVICES) + " (default: all)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep tapes and folders there")
    parser.add_argument("--heaptape", type=Path, metavar="FILE", help="the binary to test")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SERVICES]
    if unknown:
        parser.error(f"no such service: {', '.join(unknown)}")
    heaptape = (options.heaptape or build()).resolve()
    scratch = Path(tempfile.mkdtemp(prefix="heaptape-services-", dir=options.keep))
    scratch.chmod(0o755)
    rows, failed = {}, False
    try:
        for name in options.names or SERVICES:
            print(f"{name}: {SERVICES[name].__doc__}", flush=True)
            try:
                rows[name], wrong, reasons = compare(name, scratch, heaptape)
            except Missing as missing:
                print(f"  not here; Debian has it in the package {missing}")
                continue
            except (Wrong, OSError) as error:
                wrong, reasons = [str(error)], []
            for line in reasons:
                print(f"  uncovered: {line}")
            for line in wrong:
                print(f"  WRONG: {line}")
            failed |= bool(wrong)
    finally:
        if not options.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    heads = ["processes", "threads", "events", "lost", "faults", "unknown", "uncovered", "time"]
    print("\n" + f"{'service':20}" + "".join(f"{head:>11}" for head in heads) + "   (time: recorded / plain)")
    for name, row in rows.items():
        print(f"{name:20}" + "".join(f"{row[head]:>11}" for head in heads))
    sys.exit(failed)


if __name__ == "__main__":
    main()
