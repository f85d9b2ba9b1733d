"""The command line, as its users meet it: real programs, a real broker, nothing mocked."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from private_broker import LIMIT_S, PrivateBroker  # noqa: E402

HUFU = os.environ["HUFU_CLI"]
HUFUD = os.environ["HUFU_HUFUD"]
ODD_SIZE = 5 * 1024 * 1024 + 3  # Neither a multiple of a page nor of a huge page.
NOBODY = 65534
KEY = re.compile(r"[A-Za-z0-9_-]{64}")


class CliTest(unittest.TestCase):
    def setUp(self):
        self.broker = PrivateBroker(HUFUD)
        self.addCleanup(self.broker.close)
        self.here = self.broker.directory
        self.keys = []

    def file(self, content=None, name="data"):
        path = self.here / name
        path.write_bytes(os.urandom(ODD_SIZE) if content is None else content)
        return path

    def start(self, *arguments, **options):
        return self.broker.spawn([HUFU, *arguments], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, **options)

    def share(self, *arguments, **options):
        """A running `hufu share`, and its key."""
        child = self.start("share", *arguments, **options)
        key = child.stdout.readline().strip()
        self.assertRegex(key, KEY, child.stderr.read() if not key else "")
        self.keys.append(key)
        return child, key

    def hufu(self, *arguments, key=None, **options):
        """Runs it to its end. No key is ever on its stderr."""
        done = subprocess.run([HUFU, *map(str, arguments)], input=key or "", text=True,
                              capture_output=True, env=self.broker.environment, timeout=LIMIT_S,
                              **options)
        for known in self.keys:
            self.assertNotIn(known, done.stderr)
        return done

    def done(self, *arguments, **options):
        """Runs it, and it must succeed."""
        result = self.hufu(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, *arguments, **options):
        """Runs it, and it must fail with one line, which is returned, and print nothing else."""
        result = self.hufu(*arguments, **options)
        self.assertEqual(result.returncode, 1, result)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Ahufu: [^\n]+\n\Z")
        return result.stderr

    def end(self, child, how=signal.SIGTERM):
        child.send_signal(how)
        self.assertEqual(child.wait(LIMIT_S), 0)
        return child.stderr.read()

    def log(self):
        return self.done("audit", "show")


class Share(CliTest):
    def assert_opens_as(self, content, *arguments, **options):
        child, key = self.share(*arguments, **options)
        copy = self.here / "copy"
        self.done("open", "-o", copy, key=key)
        self.assertTrue(copy.read_bytes() == content, "the bytes differ")
        self.assertEqual(self.done("open", "--sha256", key=key).split()[0],
                         hashlib.sha256(content).hexdigest())
        self.end(child)

    def test_a_file_arrives_whole_and_not_a_byte_longer(self):
        path = self.file()
        self.assert_opens_as(path.read_bytes(), path)
        self.assertEqual(stat.S_IMODE((self.here / "copy").stat().st_mode), 0o600)

    def test_files_smaller_than_a_page_and_of_just_a_page_arrive(self):
        for size in (1, 100, 4096, 4097):
            with self.subTest(size):
                content = os.urandom(size)
                self.assert_opens_as(content, self.file(content))

    def test_read_only_file_arrives(self):
        path = self.file()
        self.assert_opens_as(path.read_bytes(), path, "--read-only")

    def test_a_pipe_arrives(self):
        content = os.urandom(ODD_SIZE)
        child = self.start("share", "-", stdin=subprocess.PIPE)
        child.stdin.buffer.write(content)
        child.stdin.close()
        key = child.stdout.readline().strip()
        copy = self.here / "copy"
        self.done("open", "-o", copy, key=key)
        self.assertTrue(copy.read_bytes() == content, "the bytes differ")

    def test_only_listed_processes_open_it(self):
        path = self.file()
        listed = self.start("open", "--sha256", stdin=subprocess.PIPE)  # Waits for its key.
        _, key = self.share(path, "--allow-pid", str(listed.pid))

        self.assertIn("list", self.refused("open", "--sha256", key=key))
        output, errors = listed.communicate(key, LIMIT_S)
        self.assertEqual(listed.returncode, 0, errors)
        self.assertEqual(output.split()[0], hashlib.sha256(path.read_bytes()).hexdigest())
        log = self.log()
        self.assertRegex(log, r"IMPORT deny/pid ")
        self.assertRegex(log, rf"IMPORT allow pid={listed.pid} ")

    def test_a_pid_that_is_no_process_is_refused(self):
        text = self.refused("share", self.file(), "--allow-pid", "999999999")
        self.assertIn("999999999", text)

    def test_sigterm_and_ctrl_c_withdraw_and_free(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(how):
                child, key = self.share(self.file())
                self.assertIn("withdrawn", self.end(child, how))
                self.refused("open", key=key)
                log = self.log()
                self.assertRegex(log, rf"WITHDRAW info pid={child.pid} ")
                self.assertRegex(log, rf"FREE_CLAIMED info pid={child.pid} ")

    def test_it_says_who_still_holds_it(self):
        pipe = self.here / "pipe"
        os.mkfifo(pipe)
        child, key = self.share(self.file())
        holder = self.start("open", "-o", str(pipe), stdin=subprocess.PIPE)
        holder.stdin.write(key)
        holder.stdin.close()
        with pipe.open("rb"):  # Open at both ends: by now it has imported.
            self.assertIn("1 process still holds it", self.end(child))
            holder.kill()

    def test_it_ends_by_itself(self):
        child, _ = self.share(self.file(), "--for", "0.2")
        self.assertEqual(child.wait(LIMIT_S), 0)
        child, key = self.share(self.file(), "--until-imported", "2")
        self.done("open", "--sha256", key=key)
        self.assertIsNone(child.poll())
        self.done("open", "--sha256", key=key)
        self.assertEqual(child.wait(LIMIT_S), 0)
        self.assertIn("imported 2 times", child.stderr.read())

    def test_the_end_of_the_broker_is_noticed(self):
        child, _ = self.share(self.file())
        self.broker.end_broker(signal.SIGKILL)
        self.assertEqual(child.wait(LIMIT_S), 1)
        self.assertIn("broker has ended", child.stderr.read())

    def test_the_key_file_is_for_the_owner_only(self):
        key_file = self.here / "key"
        key_file.write_text("old")
        key_file.chmod(0o644)
        child = self.start("share", self.file(), "-o", key_file)
        said = child.stderr.readline()
        self.assertIn("sharing", said)
        self.assertEqual(stat.S_IMODE(key_file.stat().st_mode), 0o600)
        key = key_file.read_text()
        self.assertRegex(key, KEY)
        self.assertNotIn(key.strip(), said)
        self.done("open", f"@{key_file}")
        self.end(child)
        self.assertEqual(child.stdout.read(), "")

    def test_a_key_is_not_written_through_a_symlink(self):
        target = self.here / "target"
        target.write_text("precious")
        (self.here / "key").symlink_to(target)
        self.refused("share", self.file(), "-o", self.here / "key")
        self.assertEqual(target.read_text(), "precious")

    def test_what_cannot_be_shared_is_refused_in_one_line(self):
        self.assertIn("directory", self.refused("share", self.here))
        self.assertIn("No such file", self.refused("share", self.here / "missing"))
        self.assertIn("empty", self.refused("share", self.file(b"")))
        self.assertIn("neither a file nor a pipe", self.refused("share", "/dev/null"))
        self.assertIsNone(self.broker.pid(), "no broker is started for nothing")
        self.assertIn("empty", self.refused("share", "-"))

    def test_an_unreadable_file_is_refused_in_one_line(self):
        path = self.file(b"secret")
        path.chmod(0)
        options = {}
        if os.geteuid() == 0:  # Root reads everything.
            self.here.chmod(0o711)
            options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        try:
            text = self.refused("share", path, **options)
        except PermissionError:
            self.skipTest("the build directory is not for everybody")
        self.assertIn("Permission denied", text)

    def test_a_full_stdout_is_a_failure(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([HUFU, "share", self.file()], stdout=full,
                                  stderr=subprocess.PIPE, text=True,
                                  env=self.broker.environment, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No space left", done.stderr)

    def test_without_a_broker_the_reason_is_named(self):
        self.broker.environment["HUFU_BROKER"] = "none"
        self.assertIn("broker", self.refused("share", self.file()))


class Open(CliTest):
    def test_stat_is_the_default_and_tells_the_exact_size(self):
        child, key = self.share(self.file())
        found = json.loads(self.done("open", "--json", key=key))
        self.assertEqual(found["size"], ODD_SIZE)
        self.assertEqual(found["access"], "read-write")
        self.assertEqual(found["owner"]["pid"], child.pid)
        self.assertIn(found["public_id"], self.done("open", key=key))

    def test_a_key_file_may_end_in_blanks(self):
        _, key = self.share(self.file())
        for tail in ("", "\n", "\r\n", " \n\n", "\0"):
            self.done("open", "--stat", key=key + tail)

    def test_bytes_go_to_stdout(self):
        path = self.file()
        _, key = self.share(path)
        done = subprocess.run([HUFU, "open", "-o", "-"], input=key.encode(), capture_output=True,
                              env=self.broker.environment, timeout=LIMIT_S)
        self.assertTrue(done.stdout == path.read_bytes(), "the bytes differ")

    def test_what_is_no_key_is_refused_in_one_line(self):
        _, key = self.share(self.file())
        changed = ("B" if key[0] == "A" else "A") + key[1:]
        self.keys.append(changed)
        for text in (changed, key[:-1], key + "A", "no key"):
            with self.subTest(text):
                self.refused("open", key=text)
        self.assertIn("empty", self.refused("open", key="\n"))
        self.assertIn("No such file", self.refused("open", f"@{self.here / 'missing'}"))
        self.assertIn("directory", self.refused("open", f"@{self.here}"))
        self.assertIn("no key file", self.refused("open", f"@{self.here / 'data'}"))

    def test_no_key_is_seen_in_a_process_list(self):
        """Also when it was an argument: then it is overwritten before anything is said."""
        key_file = self.here / "key"
        child = self.start("share", self.file(), "-o", key_file)
        child.stderr.readline()
        key = key_file.read_text().strip()
        pipe = self.here / "pipe"
        os.mkfifo(pipe)
        opener = self.start("open", key, "-o", str(pipe))
        self.assertIn("argument", opener.stderr.readline())

        seen = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                seen[entry.name] = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, NotADirectoryError, ProcessLookupError, PermissionError):
                continue
        self.assertIn(b"*" * 64, seen[str(opener.pid)], "the scan saw the process")
        self.assertIn(str(child.pid), seen)
        holders = [pid for pid, line in seen.items() if key.encode() in line]
        self.assertEqual(holders, [])
        pipe.read_bytes()
        self.assertEqual(opener.wait(LIMIT_S), 0)
        self.assertNotIn(key, opener.stderr.read())

    def test_a_key_in_the_wrong_place_is_not_repeated(self):
        _, key = self.share(self.file())
        self.assertEqual(self.hufu("open", "-", key).returncode, 2)
        self.assertEqual(self.hufu("ls", key).returncode, 2)


class Ls(CliTest):
    def test_a_share_is_listed_while_it_lives(self):
        child, key = self.share(self.file())
        row, = json.loads(self.done("ls", "--json"))["shares"]
        self.assertEqual(row["size"], ODD_SIZE)
        self.assertEqual(row["owner"]["pid"], child.pid)
        self.assertEqual(row["importers"], 0)
        self.done("open", key=key)
        row, = json.loads(self.done("ls", "--json"))["shares"]
        self.assertEqual((row["importers"], row["imports"]), (0, 1))
        table = self.done("ls")
        self.assertIn("5.0 MiB", table)
        self.assertIn(row["public_id"], table)
        self.end(child)
        self.assertEqual(json.loads(self.done("ls", "--json"))["shares"], [])

    def test_asking_starts_no_broker(self):
        self.assertEqual(json.loads(self.done("ls", "--json")), {"shares": []})
        self.done("audit", "path")
        self.hufu("doctor")
        self.assertIsNone(self.broker.pid())
        self.assertFalse(self.broker.socket.exists())


class Audit(CliTest):
    def some_log(self):
        child, key = self.share(self.file())
        self.done("open", "--sha256", key=key)
        self.end(child)
        self.broker.end_broker()

    def test_a_whole_log_verifies_and_shows_what_happened(self):
        self.some_log()
        self.assertEqual(self.done("audit", "path").strip(), str(self.broker.audit))
        self.assertIn("ok: ", self.done("audit", "verify"))
        kinds = re.findall(r"#\d+ (\S+) ", self.log())
        self.assertEqual((kinds[0], kinds[-1]), ("START", "STOP"))
        for kind in ("EXPORT", "IMPORT", "CLOSE_CLAIMED", "WITHDRAW"):
            self.assertIn(kind, kinds)
        self.assertEqual(len(self.done("audit", "show", "--tail", "2").splitlines()), 2)

    def test_an_altered_record_is_named_and_nothing_after_it_is_shown(self):
        self.some_log()
        copy = self.here / "copy"
        shutil.copytree(self.broker.audit, copy)
        segment = sorted(copy.glob("*.hfa"))[0]
        content = bytearray(segment.read_bytes())
        content[3 * 256 + 100] ^= 1  # Slot 0 is the header, so this is record 3.
        segment.write_bytes(content)

        judged = self.hufu("audit", "verify", "--dir", copy)
        self.assertEqual(judged.returncode, 1)
        self.assertIn("#3", judged.stdout)
        shown = self.hufu("audit", "show", "--dir", copy)
        self.assertEqual(shown.returncode, 1)
        self.assertEqual(len(shown.stdout.splitlines()), 2)
        self.assertIn("#3", shown.stderr)
        document = json.loads(self.hufu("audit", "show", "--json", "--dir", copy).stdout)
        self.assertEqual(len(document["records"]), 2)
        self.assertEqual(document["verdict"]["first_bad"]["seq"], 3)

    def test_a_missing_log_ends_early(self):
        missing = self.hufu("audit", "verify", "--dir", self.here / "missing")
        self.assertEqual(missing.returncode, 2)
        self.assertIn("ends_early", missing.stdout)


class Stat(CliTest):
    def test_shows_what_was_asked_for_beside_what_it_takes(self):
        child, _ = self.share(self.file())
        document = json.loads(self.done("stat", "--json"))
        (process,) = [p for p in document["processes"] if p["pid"] == child.pid]
        self.assertEqual(process["requested"], ODD_SIZE)
        self.assertEqual(process["waste"], process["reserved"] - ODD_SIZE)
        self.assertGreaterEqual(process["waste"], 0)
        self.assertEqual(process["blocks"]["count"], 1)
        for number in ("warm", "spare", "huge_page_fallbacks", "in_use"):
            self.assertIn(number, process)
        self.assertEqual(document["devices"][0]["in_use"], process["in_use"])
        text = self.done("stat")
        self.assertIn("REQUESTED", text)
        self.assertIn(str(child.pid), text)

    def test_without_a_broker_nothing_is_used_and_none_is_started(self):
        self.assertIn("nothing is used", self.hufu("stat").stderr)
        self.assertEqual(json.loads(self.done("stat", "--json"))["processes"], [])


class Doctor(CliTest):
    def test_names_broker_limits_kernel_and_huge_pages(self):
        self.share(self.file())
        result = self.hufu("doctor", "--json")
        document = json.loads(result.stdout)
        self.assertEqual(result.returncode, 1 if document["needed"] else 0)
        found = {finding["name"]: finding for finding in document["findings"]}
        self.assertIn(str(self.broker.pid()), found["yours"]["found"])
        for name in ("RLIMIT_NOFILE", "RLIMIT_MEMLOCK", "RLIMIT_FSIZE", "RLIMIT_AS",
                     "vm.max_map_count", "MemAvailable", "cgroup headroom", "/dev/shm", "pidfs",
                     "2 MiB pages", "shmem_enabled", "audit log"):
            self.assertIn(name, found)
        for finding in document["findings"]:
            if finding["state"] == "missing":
                self.assertTrue(finding["follows"], finding)
        self.assertIn("RLIMIT_NOFILE", self.hufu("doctor").stdout)

    def test_shows_wishes_that_the_broker_ignores(self):
        self.share(self.file())
        environment = dict(self.broker.environment, HUFU_DEVICES="3", HUFU_DEVICE_CAPACITY="64MiB")
        done = subprocess.run([HUFU, "doctor", "--json"], capture_output=True, env=environment,
                              timeout=LIMIT_S)
        found = {f["name"]: f for f in json.loads(done.stdout)["findings"]}
        self.assertIn("3 here", found["HUFU_DEVICES"]["found"])
        self.assertIn("ignored", found["HUFU_DEVICES"]["follows"])
        self.assertIn("64MiB here", found["HUFU_DEVICE_CAPACITY"]["found"])
        self.assertNotIn("HUFU_DEVICES", self.hufu("doctor").stdout)

    def test_locked_memory_is_a_limit_with_a_remedy(self):
        done = subprocess.run(["prlimit", "--memlock=1000000", HUFU, "doctor", "--json"],
                              capture_output=True, env=self.broker.environment, timeout=LIMIT_S)
        found = {f["name"]: f for f in json.loads(done.stdout)["findings"]}
        self.assertIn("1000000", found["RLIMIT_MEMLOCK"]["found"])
        self.assertIn("ulimit -l", found["RLIMIT_MEMLOCK"]["mend"])

    def test_a_finite_file_size_limit_is_needed_to_go(self):
        done = subprocess.run(["prlimit", "--fsize=1000000", HUFU, "doctor", "--json"],
                              capture_output=True, env=self.broker.environment, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 1)
        found = {f["name"]: f for f in json.loads(done.stdout)["findings"]}
        self.assertEqual(found["RLIMIT_FSIZE"]["state"], "needed")
        self.assertIn("ulimit", found["RLIMIT_FSIZE"]["mend"])


class Speech(CliTest):
    def test_every_help_has_examples_and_exit_codes(self):
        for command in ((), ("share",), ("open",), ("ls",), ("stat",), ("doctor",), ("audit",),
                        ("audit", "show"), ("audit", "verify"), ("audit", "path")):
            with self.subTest(command):
                text = self.done(*command, "--help")
                self.assertIn("Examples:", text)
                self.assertIn("Exit code", text)

    def test_a_wrong_command_line_is_2(self):
        for wrong in ((), ("fly",), ("share",), ("ls", "--fast"), ("share", "x", "--for", "-1")):
            with self.subTest(wrong):
                result = self.hufu(*wrong)
                self.assertEqual((result.returncode, result.stdout), (2, ""))

    def test_json_is_one_document_also_for_errors(self):
        for code, wrong in ((1, ("share", "/missing", "--json")), (2, ("ls", "--fast", "--json")),
                            (1, ("open", "--json"))):
            with self.subTest(wrong):
                result = self.hufu(*wrong)
                self.assertEqual(result.returncode, code)
                error = json.loads(result.stdout)["error"]
                self.assertIsInstance(error["code"], int)
                self.assertIn(error["message"], result.stderr)
        refusal = json.loads(self.hufu("open", "--json", key="no key").stdout)["error"]
        self.assertGreaterEqual(refusal["code"], 100000)

        child = self.start("share", self.file(), "--json", "--for", "0.2")
        document = json.loads(child.stdout.read())
        self.assertEqual(document["size"], ODD_SIZE)
        self.assertRegex(document["key"], KEY)
        for command in ("path", "verify", "show"):
            json.loads(self.done("audit", command, "--json"))


if __name__ == "__main__":
    unittest.main()
