"""Scenarios in which real servers raise their alerts: what happens, the samples that the servers export meanwhile, and the alerts of them.

A scenario returns the samples of its servers before the fault, and those while it lasts. Each scrape counts as one interval of the rules,
so that minutes take seconds. Before the fault no alert fires; afterwards those that the scenario names, and no other.
"""

import concurrent.futures
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Scrapes before the fault, and all of a test.
BEFORE, ALL = 6, 95
# Longest wait for a condition, on a busy machine.
PATIENCE = 60


def within(condition, what, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)


def free_port():
    """A port that no server has, below those of outgoing connections, which could take it before the server does."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the unix socket of a server."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self.path)


class Server:
    """A server on a free port; in memory unless `arguments` say otherwise. With `unix`, it is called over that socket."""

    def __init__(self, binary, *arguments, under=(), unix=None, instance="a"):
        port = free_port()
        self.address, self.unix, self.instance = f"127.0.0.1:{port}", unix, instance
        arguments = arguments or ("--ephemeral",)
        command = [*under, binary, "serve", "--listen", self.address, *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        within(self.is_ready, f"the start of {command}")

    def is_ready(self):
        assert self.process.poll() is None, f"the server ended: {self.process.args}"
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def stop(self, how=signal.SIGKILL):
        if self.process.poll() is None:
            # The whole group, because a tracer may have started the server.
            os.killpg(self.process.pid, how)
            self.process.wait()

    def request(self, method, path, body=None):
        """Sends a request. A read whose connection is lost is repeated, as Prometheus scrapes again."""
        for left in reversed(range(5 if method == "GET" else 1)):
            try:
                return self.request_once(method, path, body)
            except ConnectionResetError:
                if not left:
                    raise
                time.sleep(0.1)

    def request_once(self, method, path, body):
        data = None if body is None else json.dumps(body).encode()
        host, _, port = self.address.rpartition(":")
        connection = UnixConnection(self.unix) if self.unix else http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            connection.request(method, path, data, {"content-type": "application/json"} if data else {})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise ConnectionResetError(str(error)) from error
        finally:
            connection.close()

    def call(self, method, path, body=None):
        status, text = self.request(method, path, body)
        return status, json.loads(text) if status == 200 and text else None

    def done(self, method, path, body=None):
        status, text = self.request(method, path, body)
        assert status == 200, f"{method} {path}: {status} {text}"
        return json.loads(text) if text.startswith(("{", "[")) else text

    def acquire(self, name, holder="w", **terms):
        status, grant = self.call("POST", f"/v1/leases/{name}:acquire", {"holder": holder, "ttl": "60s", **terms})
        return grant["token"] if status == 200 else None

    def release(self, name, token):
        return self.request("POST", f"/v1/leases/{name}:release", {"token": token})[0]

    def samples(self):
        """Every sample of the server, as series of Prometheus."""
        found = {}
        for line in self.request("GET", "/metrics")[1].splitlines():
            if line.startswith("#"):
                continue
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            own = ['job="leasehold"', f'instance="{self.instance}"', labels.rstrip("}")]
            found[f"{name}{{{','.join(part for part in own if part)}}}"] = value
        return found

    def value(self, name):
        """The sum of a metric over its labels."""
        return sum(float(value) for series, value in self.samples().items() if series.partition("{")[0] == name)


class Lab:
    """What a scenario has: the binary, directories of its own, and servers that end with it."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.running, self.folders = binary, folder, [], []
        os.makedirs(folder)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def server(self, *arguments, **options):
        server = Server(self.binary, *arguments, **options)
        self.running.append(server)
        return server

    def leasehold(self, *arguments, address=None):
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LEASEHOLD_")}
        environment.update({"LEASEHOLD_ADDR": address} if address else {})
        done = subprocess.run([self.binary, *arguments], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, f"{arguments}: {done}"
        return done.stdout

    def memory(self):
        """A directory in memory."""
        self.folders.append(tempfile.mkdtemp(dir="/dev/shm"))
        return self.folders[-1]

    def close(self):
        for server in self.running:
            server.stop()
        for folder in self.folders:
            shutil.rmtree(folder)


def strace(call, inject, paths=()):
    """A wrapper under which a system call fails or is slow; if there are paths, only on these."""
    # With -D the tracer is a child, so that the traced process keeps its id.
    only = [word for path in paths for word in ["-P", path]]
    return ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", *only, "-e", f"trace={call}", "-e", f"inject={call}:{inject}"]


def once(fault):
    """A scenario in which something happens once on a server in memory."""

    def run(lab):
        server = lab.server()
        before = server.samples()
        fault(server)
        return [before], [server.samples()]

    return run


def healthy(lab):
    """An hour of load: leases are granted, renewed, checked, handed on to waiters and released; one sample per minute."""
    # In memory, because the disk of a busy machine may be slow, which is an alert.
    server = lab.server("--data", os.path.join(lab.memory(), "journal"))
    assert server.request("GET", "/v1/backup")[0] == 200
    stopping = threading.Event()

    def work(worker):
        count = 0
        while not stopping.is_set():
            name = f"jobs/{worker}-{count % 7}"
            token = server.acquire(name, f"worker-{worker}")
            for verb in ["renew", "check", "release"]:
                assert server.request("POST", f"/v1/leases/{name}:{verb}", {"token": token})[0] == 200, verb
            shared = server.acquire("jobs/shared", f"worker-{worker}", wait="30s")
            assert server.release("jobs/shared", shared) == 200
            count += 1
            stopping.wait(0.02)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, worker) for worker in range(4)]
        try:
            within(lambda: server.value("leasehold_leases_granted_total") >= 20, "load")
            scrapes = []
            for _ in range(65):
                scrapes.append(server.samples())
                time.sleep(0.15)
        finally:
            stopping.set()
        for worker in workers:
            worker.result()
    granted = [float(one['leasehold_leases_granted_total{job="leasehold",instance="a"}']) for one in scrapes]
    assert granted[-1] > granted[0] + 65, granted
    return scrapes[:BEFORE], scrapes[BEFORE:]


def renewal_rejected(server):
    token = server.acquire("jobs/a")
    assert server.release("jobs/a", token) == 200
    assert server.request("POST", "/v1/leases/jobs/a:renew", {"token": token})[0] == 410


def stale_token(server):
    token = server.acquire("jobs/a")
    server.done("POST", "/v1/leases/jobs/a:rotate", {"token": token})
    assert server.release("jobs/a", token) >= 400


def zombie(server):
    server.acquire("jobs/a")
    server.done("POST", "/v1/leases/jobs/a:revoke", {"comment": "a test"})
    server.acquire("jobs/a", "w2")
    mark = server.done("GET", "/v1/leases/jobs/a")["leases"][0]["token_number"]
    refused = {"presented": str(int(mark) - 1), "mark": mark, "times": 1, "holder": "w"}
    report = {"resource": "jobs/a", "target": "ledger", "mode": "forced", "checks": 1, "refusals": 1, "zombie": refused}
    server.done("POST", "/v1/coverage", {"cluster": server.done("GET", "/v1/status")["cluster"], "reports": [report]})


def stalled(server):
    server.acquire("jobs/a", progress="100ms")
    ended = 'leasehold_leases_ended_total{job="leasehold",instance="a",state="expired",reason="stalled"}'
    within(lambda: server.samples()[ended] == "1", "the end of a holder without progress")


def deadlock(server):
    sessions = [server.done("POST", "/v1/sessions", {"holder": holder, "ttl": "60s"})["session"] for holder in ["one", "two"]]

    def acquire(name, session, wait):
        server.request("POST", f"/v1/leases/jobs/{name}:acquire", {"session": session, "ttl": "60s", "wait": wait})

    acquire("a", sessions[0], "1ms")
    acquire("b", sessions[1], "1ms")
    waits = [threading.Thread(target=acquire, args=row) for row in [("b", sessions[0], "2s"), ("a", sessions[1], "2s")]]
    for wait in waits:
        wait.start()
    for wait in waits:
        wait.join()


def revocations(server):
    for number in range(11):
        server.acquire(f"jobs/{number}")
        server.done("POST", f"/v1/leases/jobs/{number}:revoke", {"comment": "a test"})


def coverage_hole(server):
    charter = {"targets": [{"name": "ledger", "at": "the ledger", "mode": "forced"}]}
    server.done("PUT", "/v1/charters/jobs", {"charter": charter, "comment": "a test"})


def no_leader(lab):
    server = lab.server()
    before = server.samples()
    server.stop()
    return [before], [{}]


def several_leaders(lab):
    """Two servers that are scraped as one cluster and both lead."""
    first = lab.server()
    before = first.samples()
    second = lab.server(instance="b")
    return [before], [{**first.samples(), **second.samples()}]


def expiry_lag(lab):
    """A server that is stopped again and again for longer than a second, while a lease is held."""
    server = lab.server()
    server.acquire("jobs/a", ttl="10m")
    before, scrapes = server.samples(), []
    for _ in range(10):
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(1.3)
        server.process.send_signal(signal.SIGCONT)
        scrapes.append(server.samples())
    return [before], scrapes


def journal_slow(lab):
    """A disk whose syncs take 150 ms."""
    data = lab.path("journal")
    lab.server("--data", data).stop(signal.SIGTERM)
    server = lab.server("--data", data, under=strace("fdatasync", "delay_enter=150000"))
    before, scrapes = server.samples(), []
    for number in range(16):
        assert server.acquire(f"jobs/{number}")
        scrapes.append(server.samples())
    # Before the fault, the server had made one slow append, its opening.
    return [before], scrapes


def disk_full(lab):
    """A file system that is too small."""
    os.mkdir(lab.path("disk"))
    mount = f"mount -t tmpfs -o size=2m tmpfs {lab.path('disk')} && exec \"$@\""
    # Without rights of its own, the server is root of a user namespace.
    under = ["unshare", "-m" if os.getuid() == 0 else "-rm", "sh", "-c", mount, "sh"]
    server = lab.server("--data", lab.path("disk", "journal"), "--segment-bytes", "64KiB", under=under)
    before = server.samples()
    metadata = "x" * 4000
    for number in range(2000):
        status, _ = server.request("POST", f"/v1/leases/jobs/{number}:acquire", {"holder": "w", "ttl": "60s", "metadata": metadata})
        if status != 200:
            break
    assert status == 507, status
    return [before], [server.samples()]


def etcd_near_quota(lab):
    """An etcd that is filled by another application, up to 81 % of its quota."""
    quota = 64 << 20
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    etcd = subprocess.Popen(
        ["etcd", "--data-dir", lab.path("etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
         "--quota-backend-bytes", str(quota), "--unsafe-no-fsync"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def etcdctl(*arguments, **options):
            return subprocess.run(["etcdctl", "--endpoints", client, *arguments], capture_output=True, text=True, check=False, **options)

        within(lambda: etcdctl("endpoint", "health").returncode == 0, "the start of etcd")
        address = client.removeprefix("http://")
        server = lab.server("--journal", f"etcd://{address}/leases", "--data", lab.path("server"), "--etcd-quota", "64MiB",
                            "--etcd-lease", "30")
        used, limit = "leasehold_etcd_database_bytes", "leasehold_etcd_quota_bytes"
        within(lambda: server.value(used) > 0 and server.value(limit) == quota, "the server knows the quota")
        before = server.samples()

        def size():
            return json.loads(etcdctl("endpoint", "status", "-w", "json").stdout)[0]["Status"]["dbSize"]

        number = 0
        while size() < 0.81 * quota:
            put = etcdctl("put", f"other/{number}", input="x" * (1 << 20))
            assert put.returncode == 0, put
            number += 1
        within(lambda: server.value(used) > 0.8 * quota, "the server sees how full etcd is")
        status, text = server.request("POST", "/v1/leases/jobs/a:acquire", {"holder": "w", "ttl": "60s"})
        assert status == 200, f"leases are granted below 90 %: {status} {text}, {server.value(used)} of {quota}"
        after = server.samples()
        server.stop()
        return [before], [after]
    finally:
        etcd.kill()
        etcd.wait()


# Opens a session stream as a holder whose wall clock is two minutes ahead, and closes it after the welcome.
HOLDER_AHEAD = """
import sys, time, grpc

def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])

def message(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content

opening = message(1, b"holder") + varint(2 << 3) + varint(60000)
hello = varint(1 << 3) + varint(1) + message(2, opening) + varint(5 << 3) + varint(int(time.time() * 1000) + 120000)
with grpc.insecure_channel(sys.argv[1]) as channel:
    session = channel.stream_stream("/leasehold.v1.Leasehold/Session")
    assert next(session(iter([message(1, hello)]), timeout=60))
"""


def clock_skew(lab):
    server = lab.server()
    before = server.samples()
    tools = os.environ.get("LEASEHOLD_MOTO", os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "target", "moto"))
    done = subprocess.run([os.path.join(tools, "bin", "python"), "-c", HOLDER_AHEAD, server.address], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return [before], [server.samples()]


def snapshot_failed(lab):
    """A directory in which no snapshot can be created."""
    data = lab.path("journal")
    # The server opens files by their names in the directory.
    drafts = [f"snapshot-{position:020}.tmp" for position in range(100)]
    server = lab.server("--data", data, "--snapshot-after-batches", "5", under=strace("openat", "error=ENOSPC", drafts))
    before = server.samples()
    for number in range(20):
        assert server.acquire(f"jobs/{number}")
    within(lambda: server.value("leasehold_snapshotter_failures_total") > 0, "a failed snapshot")
    return [before], [server.samples()]


def no_backup(lab):
    server = lab.server()
    samples = server.samples()
    return [samples], [samples]


def openssl(*arguments):
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done


def certificate_ends(lab):
    """A certificate that is replaced by one that ends in three days."""
    def make(days):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=server", "-days", str(days),
                "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "extendedKeyUsage=serverAuth", "-keyout", lab.path("server.key"), "-out", lab.path("server.pem"))
        os.chmod(lab.path("server.key"), 0o600)

    make(90)
    shutil.copy(lab.path("server.pem"), lab.path("clients.pem"))
    unix = lab.path("socket")
    access = lab.write("access.toml", f'[[grant]]\nprincipal = "uid:{os.getuid()}"\nrole = "admin"\nprefix = ""\n')
    server = lab.server("--data", lab.path("journal"), "--tls-cert", lab.path("server.pem"), "--tls-key", lab.path("server.key"),
                        "--client-ca", lab.path("clients.pem"), "--access", access, "--socket", unix, unix=unix)
    before = server.samples()
    make(3)
    server.process.send_signal(signal.SIGHUP)
    name = 'leasehold_certificate_expiry_seconds{job="leasehold",instance="a",certificate="server"}'
    within(lambda: float(server.samples()[name]) < 4 * 86400, "the new certificate is loaded")
    return [before], [server.samples()]


def rolled_back(lab):
    """A server whose directory is replaced by an older copy, and then sees a token of the time between."""
    data, copy = lab.path("journal"), lab.path("copy")
    server = lab.server("--data", data)
    server.acquire("jobs/a")
    server.stop()
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("*.sock"))
    server = lab.server("--data", data)
    tokens = [server.acquire(f"jobs/lost-{number}") for number in range(3)]
    server.stop()
    shutil.rmtree(data)
    os.rename(copy, data)
    server = lab.server("--data", data, "--accept-copy")
    before = server.samples()
    server.request("POST", "/v1/leases/jobs/lost-2:renew", {"token": tokens[2]})
    return [before], [server.samples()]


def audit_lost(lab):
    """An audit log that was deleted behind a snapshot that knows how long it was."""
    data = lab.path("journal")
    arguments = ["--data", data, "--snapshot-after-batches", "5", "--segment-bytes", "4KiB"]
    server = lab.server(*arguments)
    before = server.samples()
    for number in range(60):
        server.release(f"jobs/{number}", server.acquire(f"jobs/{number}"))
    within(lambda: server.value("leasehold_snapshots_total") > 2, "snapshots")
    server.stop(signal.SIGTERM)
    for name in os.listdir(data):
        if name.startswith("trail-"):
            os.remove(os.path.join(data, name))
    server = lab.server(*arguments)
    within(lambda: server.value("leasehold_audit_lost_entries_total") > 0, "the server notices what is missing")
    return [before], [server.samples()]


def acted_alone(lab):
    """One identity that revokes a lease although its access file asks for two, and may."""
    me, unix = f"uid:{os.getuid()}", lab.path("socket")
    grants = "".join(f'[[grant]]\nprincipal = "{me}"\nrole = "{role}"\nprefix = ""\n' for role in ["admin", "holder"])
    access = lab.write("access.toml", f'{grants}[two_person]\nactions = ["revoke"]\nalone = ["{me}"]\n')
    server = lab.server("--data", lab.path("journal"), "--access", access, "--socket", unix, unix=unix)
    assert server.acquire("jobs/a")
    before = server.samples()
    lab.leasehold("revoke", "jobs/a", "--comment", "a test", "--alone", "the site is down", address=f"unix:{unix}")
    return [before], [server.samples()]


# What happens, when the rules are evaluated, which alerts fire then, and how long an interval is.
SCENARIOS = [
    ("an hour of healthy load", healthy, ["10m", "30m", "64m"], [], "1m"),
    ("a refused renewal", once(renewal_rejected), ["9m"], ["LeaseholdRenewalRejected"], "1m"),
    ("a stale token", once(stale_token), ["9m"], ["LeaseholdStaleToken"], "1m"),
    ("a write of a zombie", once(zombie), ["9m"], ["LeaseholdZombieWriteRefused"], "1m"),
    ("a holder without progress", once(stalled), ["9m"], ["LeaseholdHolderStalled"], "1m"),
    ("a deadlock", once(deadlock), ["9m"], ["LeaseholdDeadlock"], "1m"),
    ("eleven revocations", once(revocations), ["9m"], ["LeaseholdRevocations"], "1m"),
    ("a target without reports", once(coverage_hole), ["30m"], ["LeaseholdCoverageHole"], "1m"),
    ("a server that was killed", no_leader, ["9m"], ["LeaseholdNoLeader"], "1m"),
    ("two servers that lead", several_leaders, ["12m"], ["LeaseholdSeveralLeaders"], "1m"),
    ("a server that is stopped for seconds", expiry_lag, ["14m"], ["LeaseholdExpiryLag"], "1m"),
    ("a slow disk", journal_slow, ["21m"], ["LeaseholdJournalSlow"], "1m"),
    ("a full disk", disk_full, ["9m"], ["LeaseholdDiskFull"], "1m"),
    ("an etcd that is almost full", etcd_near_quota, ["14m"], ["LeaseholdEtcdNearQuota"], "1m"),
    ("a holder whose clock is ahead", clock_skew, ["14m"], ["LeaseholdClockSkew"], "1m"),
    ("a snapshot that cannot be written", snapshot_failed, ["9m"], ["LeaseholdSnapshotFailed"], "1m"),
    ("a certificate that ends in three days", certificate_ends, ["9m"], ["LeaseholdCertificateEnds"], "1m"),
    ("a rolled back journal", rolled_back, ["9m"], ["LeaseholdRollbackProof", "LeaseholdQuarantine", "LeaseholdRenewalRejected"], "1m"),
    ("an audit log that was deleted", audit_lost, ["9m"], ["LeaseholdAuditLost"], "1m"),
    ("one identity that acts alone", acted_alone, ["9m"], ["LeaseholdActedAlone"], "1m"),
    ("no backup for 38 hours", no_backup, ["38h"], ["LeaseholdBackupOld"], "30m"),
]

# Alerts that no scenario raises, and why. Their rules are tested with written series.
WITHOUT_SCENARIO = {
    "LeaseholdClockStepBack": "the server reads the clock of the machine, which a test must not set",
}


def series_of(before, during, used):
    """The samples as series: those before the fault, those of it, and then the last ones."""
    before = before + before[-1:] * (BEFORE - len(before))
    scrapes = before + during + during[-1:] * (ALL - BEFORE - len(during))
    series = []
    for key in sorted(set().union(*scrapes)):
        if key.partition("{")[0] in used:
            values = [scrape.get(key) for scrape in scrapes]
            # A series that ends is stale, and one that begins later has no value before.
            texts = [value or ("stale" if number and values[number - 1] else "_") for number, value in enumerate(values)]
            series.append({"series": key, "values": " ".join(texts)})
    return series


def promtool_test(name, samples, at, alerts, used, interval):
    """A test of rules: no alert fires before the fault, and exactly these alerts do at these times."""
    expected = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in alerts]
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    queries = [{"expr": query, "eval_time": time, "exp_samples": expected} for time in at]
    silent = "5m" if interval == "1m" else "30m"
    queries.append({"expr": query, "eval_time": silent, "exp_samples": []})
    return {"name": name, "interval": interval, "input_series": series_of(*samples, used), "promql_expr_test": queries}


def run_all(binary, folder, rules, used):
    """Runs every scenario. Returns files of tests for promtool, and the errors of scenarios."""
    tests, errors = {}, []

    def run(number):
        name, scenario, at, alerts, interval = SCENARIOS[number]
        lab = Lab(binary, os.path.join(folder, f"scenario-{number}"))
        started = time.monotonic()
        try:
            samples = scenario(lab)
        finally:
            lab.close()
        if os.environ.get("LEASEHOLD_TIMINGS"):
            print(f"{time.monotonic() - started:6.1f} s  {name}", file=sys.stderr)
        return interval, promtool_test(name, samples, at, alerts, used, interval)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        # The longest first.
        running = {pool.submit(run, number): SCENARIOS[number][0] for number in range(len(SCENARIOS))}
        for future, name in running.items():
            try:
                interval, test = future.result()
                tests.setdefault(interval, []).append(test)
            except (AssertionError, OSError, ValueError, KeyError) as error:
                errors.append(f"{name}: {error!r}")
    files = []
    for interval, group in tests.items():
        path = os.path.join(folder, f"scenarios-{interval}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rule_files": [rules], "evaluation_interval": interval, "tests": group}, file)
        files.append(path)
    return files, errors
