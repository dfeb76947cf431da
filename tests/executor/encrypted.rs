//! Executors that are reached by TLS.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use jittison::executor::{ExecutorProcess, ServerCertificate, TrustedCertificates};
use jittison::{ErrorKind, Jit};
use jittison_test_tools::{PrivateDir, emulated, require};

use crate::far::{Listening, TOKEN};
use crate::{Remote, c, cpp};

/// A certificate that has signed itself, and its key.
struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    _directory: PrivateDir,
}

impl Certificate {
    /// For executors of this machine. `None` where nothing makes certificates.
    fn new() -> Option<Certificate> {
        Certificate::with("IP:127.0.0.1", "CA:FALSE")
    }

    fn with(names: &str, constraints: &str) -> Option<Certificate> {
        let mut command = require("openssl")?;
        let directory = PrivateDir::new();
        let (certificate, key) = (directory.path("executor.pem"), directory.path("executor.key"));
        // As `docs/executor.md` says.
        command.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365".split(' '));
        command.args(["-subj", "/CN=executor", "-addext", &format!("basicConstraints=critical,{constraints}")]);
        command
            .args(["-addext", &format!("subjectAltName={names}"), "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(Certificate { certificate, key, _directory: directory })
    }

    fn trusted(&self) -> TrustedCertificates {
        TrustedCertificates::from_pem(&fs::read(&self.certificate).unwrap()).unwrap()
    }

    /// An executor that has it.
    fn listen(&self) -> Listening {
        self.listen_with(Stdio::inherit())
    }

    fn listen_with(&self, stdout: Stdio) -> Listening {
        let arguments = [OsStr::new("--certificate"), self.certificate.as_ref(), "--key".as_ref(), self.key.as_ref()];
        Listening::start_with(&arguments, stdout)
    }

    /// Connects to an executor that has it.
    fn connect(&self, address: SocketAddr) -> Result<ExecutorProcess, jittison::Error> {
        ExecutorProcess::connect_encrypted(address, "127.0.0.1", TOKEN, &self.trusted())
    }

    /// A session with an executor that has it.
    fn session(&self, address: SocketAddr) -> Remote {
        let executor = self.connect(address).unwrap();
        let jit = Jit::builder().executor(&executor).library("libstdc++.so.6").build().unwrap();
        Remote { executor, jit }
    }
}

/// A function of the main dylib.
macro_rules! find {
    ($remote:expr, $name:literal, fn($($argument:ty),*) $(-> $result:ty)?) => {
        // SAFETY: the function has this signature.
        unsafe { $remote.jit.lookup::<extern "C" fn($($argument),*) $(-> $result)?>($name) }.unwrap()
    };
}

/// What passes the bytes of connections on, and keeps them. It ends with its test.
struct Proxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<u8>>>,
    /// Changes one bit of all that is passed on from now on.
    changes: Arc<AtomicBool>,
}

impl Proxy {
    fn before(executor: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, changes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let proxy = Proxy { address, seen: seen.clone(), changes: changes.clone() };
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(executor) else { continue };
                for (mut from, mut to) in [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to, from)] {
                    let (seen, changes) = (seen.clone(), changes.clone());
                    thread::spawn(move || {
                        let mut bytes = [0; 1 << 16];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            seen.lock().unwrap().extend_from_slice(&bytes[..count]);
                            bytes[count - 1] ^= u8::from(changes.load(Ordering::Relaxed));
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        // Each fails only if the connection is closed.
                        let _ = to.shutdown(Shutdown::Write);
                        let _ = from.shutdown(Shutdown::Read);
                    });
                }
            }
        });
        proxy
    }

    fn has_seen(&self, text: &str) -> bool {
        self.seen.lock().unwrap().windows(text.len()).any(|bytes| bytes == text.as_bytes())
    }
}

/// Waits until a condition holds, for twenty seconds at most.
fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

extern "C" fn double(n: i64) -> i64 {
    2 * n
}

#[test]
fn calls_exceptions_threads_and_callbacks_work_through_tls() {
    let source = "#include <stdexcept>
        #include <thread>
        extern \"C\" long twice(long); extern \"C\" const unsigned char bytes[3 << 20];
        extern \"C\" long test(long n) { try { if (n) throw std::runtime_error(\"x\"); } catch (const std::exception &) { return 5; } return bytes[(3 << 20) - 1]; }
        extern \"C\" long threaded(long n) { long r = 0; std::thread([&] { r = twice(n); }).join(); return r + twice(1); }";
    // The data is longer than all buffers on the way.
    let data = "const unsigned char bytes[3 << 20] = {[0 ... (3 << 20) - 2] = 9, [(3 << 20) - 1] = 77};";
    let (Some(certificate), Some(object), Some(data)) = (Certificate::new(), cpp(source), c(data)) else { return };
    let listening = certificate.listen();
    let remote = certificate.session(listening.address);
    assert_eq!(remote.executor.id(), listening.child.id());
    let _data = remote.add("data.o", &data);
    let tracker = remote.add("test.o", &object);
    // SAFETY: the function takes any number.
    unsafe { remote.jit.define_function(&tracker, "twice", double as extern "C" fn(i64) -> i64) }.unwrap();
    let test = find!(remote, "test", fn(i64) -> i64);
    assert_eq!([test.call(1), test.call(0)], [5, 77]);
    // A thread there has a connection that the controller opens.
    assert_eq!(find!(remote, "threaded", fn(i64) -> i64).call(20), 42);
    let other_thread = thread::scope(|scope| scope.spawn(|| test.call(1)).join().unwrap());
    assert_eq!(other_thread, 5);
    drop(test);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn a_function_is_replaced_through_tls() {
    let version = |number: i64| c(&format!("long version(void) {{ return {number}; }}"));
    let (Some(certificate), Some(one), Some(two)) = (Certificate::new(), version(1), version(2)) else { return };
    let listening = certificate.listen();
    let remote = certificate.session(listening.address);
    let builder = remote.jit.patchable_builder(remote.jit.main_dylib(), &["version"]);
    let kernels = builder.history(0).max_versions(usize::MAX).build().unwrap();
    for (object, expected) in [(&one, 1), (&two, 2), (&one, 1)] {
        let mut patch = kernels.patch();
        patch.add_object("version.o", &object[..]).unwrap();
        // SAFETY: the object may run, and every version has this signature.
        drop(unsafe { patch.link() }.unwrap().commit().unwrap());
        assert_eq!(find!(remote, "version", fn() -> i64).call(), expected);
    }
}

#[test]
fn who_reads_the_connections_sees_neither_the_token_nor_the_data() {
    let Some(object) = c("const char text[] = \"a text of the program\"; long size(void) { return sizeof text; }")
    else {
        return;
    };
    let Some(certificate) = Certificate::new() else { return };
    let run = |remote: &Remote| {
        let _tracker = remote.add("size.o", &object);
        assert_eq!(find!(remote, "size", fn() -> i64).call(), 22);
    };
    // The name in the certificate is that of the proxy's machine, too.
    let listening = certificate.listen();
    let proxy = Proxy::before(listening.address);
    run(&certificate.session(proxy.address));
    assert!(proxy.seen.lock().unwrap().len() > 1000);
    assert!(!proxy.has_seen(TOKEN) && !proxy.has_seen("a text of the program") && !proxy.has_seen("jittison"));

    // Without encryption it sees all of them.
    let listening = Listening::start_with(&[], Stdio::inherit());
    let proxy = Proxy::before(listening.address);
    let executor = ExecutorProcess::connect(proxy.address, TOKEN).unwrap();
    run(&Remote { jit: Jit::builder().executor(&executor).build().unwrap(), executor });
    assert!(proxy.has_seen(TOKEN) && proxy.has_seen("a text of the program") && proxy.has_seen("jittison"));
}

#[test]
fn bytes_that_somebody_changes_end_the_executor() {
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let Some(certificate) = Certificate::new() else { return };
    let mut listening = certificate.listen();
    let proxy = Proxy::before(listening.address);
    let remote = certificate.session(proxy.address);
    let tracker = remote.add("one.o", &object);
    let one = find!(remote, "one", fn() -> i64);
    assert_eq!(one.call(), 1);
    proxy.changes.store(true, Ordering::Relaxed);
    let error = one.try_call().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExecutorEnded { .. }), "{error}");
    drop(one);
    assert!(tracker.remove().unwrap().is_complete());
    assert!(eventually(|| listening.child.try_wait().unwrap().is_some()), "the executor has not ended");
}

#[test]
fn only_an_executor_with_a_trusted_certificate_gets_the_token() {
    let (Some(certificate), Some(other)) = (Certificate::new(), Certificate::new()) else { return };
    let (Some(elsewhere), Some(authority)) =
        (Certificate::with("DNS:elsewhere", "CA:FALSE"), Certificate::with("IP:127.0.0.1", "CA:TRUE"))
    else {
        return;
    };
    let listening = certificate.listen();
    let proxy = Proxy::before(listening.address);
    let error = other.connect(proxy.address).unwrap_err().to_string();
    assert!(error.contains("no executor was reached") && error.contains("its certificate is not trusted"), "{error}");
    let trusted = certificate.trusted();
    let error =
        ExecutorProcess::connect_encrypted(proxy.address, "localhost", TOKEN, &trusted).unwrap_err().to_string();
    assert!(error.contains("its certificate is not accepted") && error.contains("localhost"), "{error}");
    let error = ExecutorProcess::connect_encrypted(proxy.address, "a b", TOKEN, &trusted).unwrap_err().to_string();
    assert!(error.contains("`a b` is no name of a machine"), "{error}");
    // Nor does an executor whose certificate is for others, or for signing.
    let error = elsewhere.connect(elsewhere.listen().address).unwrap_err().to_string();
    assert!(error.contains("its certificate is not accepted") && error.contains("elsewhere"), "{error}");
    let error = authority.connect(authority.listen().address).unwrap_err().to_string();
    assert!(error.contains("make one with `basicConstraints=CA:FALSE`"), "{error}");
    // A token is needed as without encryption.
    let error = ExecutorProcess::connect_encrypted(proxy.address, "127.0.0.1", "0123456789abcdeF", &trusted);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the token is another one"), "{error}");
    // After all of them the executor serves.
    assert_eq!(certificate.connect(proxy.address).unwrap().id(), listening.child.id());
}

#[test]
fn sides_of_which_one_encrypts_say_so_and_the_executor_serves_on() {
    let Some(certificate) = Certificate::new() else { return };
    let listening = certificate.listen();
    let error = ExecutorProcess::connect(listening.address, TOKEN).unwrap_err().to_string();
    assert!(error.contains("it encrypts its connections, and this side does not"), "{error}");
    certificate.connect(listening.address).unwrap();

    let listening = Listening::start_with(&[], Stdio::inherit());
    let error = certificate.connect(listening.address).unwrap_err().to_string();
    assert!(error.contains("the other side does not encrypt the connection"), "{error}");
    assert!(error.contains("--certificate"), "{error}");
    ExecutorProcess::connect(listening.address, TOKEN).unwrap();
}

#[test]
fn who_says_nothing_keeps_neither_side_waiting_for_long() {
    let Some(certificate) = Certificate::new() else { return };
    let listening = certificate.listen();
    let silent = TcpStream::connect(listening.address).unwrap();
    // The begin of a record of TLS whose end never comes.
    let mut slow = TcpStream::connect(listening.address).unwrap();
    slow.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let closed = [silent, slow].map(|mut stream| {
        thread::spawn(move || {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.read(&mut [0; 100])
        })
    });
    // An executor that accepts a connection, and nothing more.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = certificate.connect(nobody.local_addr().unwrap()).unwrap_err().to_string();
    assert!(error.contains("did not answer in time"), "{error}");
    for closed in closed {
        assert_eq!(closed.join().unwrap().unwrap(), 0);
    }
    // The others did not hold it up.
    certificate.connect(listening.address).unwrap();
}

#[test]
fn the_end_or_delay_of_an_executor_behind_tls_is_an_error() {
    let Some(object) = c("long one(void) { return 1; } void hang(void) { for (;;); }") else { return };
    let Some(certificate) = Certificate::new() else { return };
    let mut listening = certificate.listen();
    let remote = certificate.session(listening.address);
    let tracker = remote.add("one.o", &object);
    let hang = find!(remote, "hang", fn());
    let error = thread::scope(|scope| {
        let waiting = scope.spawn(|| hang.try_call().unwrap_err());
        thread::sleep(Duration::from_millis(50));
        listening.child.kill().unwrap();
        waiting.join().unwrap()
    });
    assert!(error.to_string().contains("has closed its connections while it called the function"), "{error}");
    drop(hang);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);

    let mut listening = certificate.listen();
    let remote = certificate.session(listening.address);
    let _tracker = remote.add("one.o", &object);
    remote.executor.set_time_to_answer(Some(Duration::from_millis(200)));
    let error = find!(remote, "hang", fn()).try_call().unwrap_err();
    assert!(error.to_string().contains("did not answer in the time"), "{error}");
    assert!(eventually(|| listening.child.try_wait().unwrap().is_some()), "the executor has not ended");
}

#[test]
fn an_executor_keeps_no_connection_and_no_thread_of_a_thread_that_has_ended() {
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let Some(certificate) = Certificate::new() else { return };
    let listening = certificate.listen();
    let remote = certificate.session(listening.address);
    let _tracker = remote.add("one.o", &object);
    let one = find!(remote, "one", fn() -> i64);
    assert_eq!(one.call(), 1);
    let count = |what| fs::read_dir(format!("/proc/{}/{what}", listening.child.id())).unwrap().count();
    let both = || [count("fd"), count("task")];
    let before = both();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| assert_eq!(one.call(), 1))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    // Connections that never became a lane.
    for _ in 0..4 {
        ExecutorProcess::connect(listening.address, TOKEN).unwrap_err();
        drop(TcpStream::connect(listening.address).unwrap());
    }
    assert!(eventually(|| both() == before), "{before:?} descriptors and threads have become {:?}", both());
}

/// `jittison run` with an executor by TLS.
fn command_line(address: SocketAddr, object: &Path, certificate: Option<&Path>) -> Command {
    let mut command = emulated(Path::new(env!("CARGO_BIN_EXE_jittison")));
    command.args(["run", &format!("--executor=tls:{address}")]).arg(object).args(["--", "word"]);
    command.env("JITTISON_EXECUTOR_TOKEN", TOKEN).env_remove("JITTISON_EXECUTOR_CERTIFICATE");
    if let Some(certificate) = certificate {
        command.env("JITTISON_EXECUTOR_CERTIFICATE", certificate);
    }
    command
}

#[test]
fn the_command_line_runs_a_program_through_tls() {
    let source =
        "#include <stdio.h>\nint main(int argc, char **argv) { printf(\"%d %s\\n\", argc, argv[1]); return 5; }";
    let (Some(certificate), Some(object)) = (Certificate::new(), c(source)) else { return };
    let directory = PrivateDir::new();
    let path = directory.write("program.o", object);
    let mut listening = certificate.listen_with(Stdio::piped());
    let refused = |file: Option<&Path>, problem: &str| {
        let output = command_line(listening.address, &path, file).output().unwrap();
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains(problem), "{output:?}");
    };
    refused(None, "`JITTISON_EXECUTOR_CERTIFICATE` is not set");
    refused(Some(&directory.path("none.pem")), "none.pem: No such file");
    refused(Some(&certificate.key), "executor.key: the text has no certificate in PEM");
    let ran = command_line(listening.address, &path, Some(&certificate.certificate)).output().unwrap();
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    let mut output = String::new();
    listening.child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(output, "2 word\n");
}

#[test]
fn an_executor_ends_with_its_controller_behind_tls() {
    let source = "#include <stdio.h>\nint main(void) { puts(\"runs\"); fflush(stdout); for (;;); }";
    let (Some(certificate), Some(object)) = (Certificate::new(), c(source)) else { return };
    let directory = PrivateDir::new();
    let path = directory.write("program.o", object);
    let mut listening = certificate.listen_with(Stdio::piped());
    let mut controller = command_line(listening.address, &path, Some(&certificate.certificate)).spawn().unwrap();
    let mut stdout = listening.child.stdout.take().unwrap();
    let reads = thread::spawn(move || stdout.read_exact(&mut [0; 5]));
    let begins = eventually(|| reads.is_finished());
    controller.kill().unwrap();
    controller.wait().unwrap();
    assert!(begins, "the program has not begun");
    assert!(eventually(|| listening.child.try_wait().unwrap().is_some()), "the executor has not ended");
}

#[test]
fn an_executor_without_a_good_certificate_does_not_listen() {
    let (Some(certificate), Some(other)) = (Certificate::new(), Certificate::new()) else { return };
    let refused = |arguments: &[&OsStr], problem: &str| {
        let mut command = emulated(Path::new(env!("CARGO_BIN_EXE_jittison-executor")));
        command.args(["--listen", "127.0.0.1:0"]).args(arguments).env("JITTISON_EXECUTOR_TOKEN", TOKEN);
        let output = command.output().unwrap();
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains(problem), "{output:?}");
    };
    let (file, key) = (certificate.certificate.as_os_str(), certificate.key.as_os_str());
    let [certificate_is, key_is] = ["--certificate", "--key"].map(OsStr::new);
    refused(&[certificate_is, file], "usage: ");
    refused(&[certificate_is, file, key_is, "/none.key".as_ref()], "/none.key: No such file");
    refused(&[certificate_is, file, key_is, file], "the text has no private key in PEM");
    refused(&[certificate_is, key, key_is, key], "the text has no certificate in PEM");
    refused(&[key_is, other.key.as_ref(), certificate_is, file], "the certificate and the key do not fit");
}

#[test]
fn texts_that_are_no_certificates_are_errors_and_a_key_is_not_shown() {
    let Some(certificate) = Certificate::new() else { return };
    let [pem, key] = [&certificate.certificate, &certificate.key].map(|path| fs::read(path).unwrap());
    let damaged = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    for (text, problem) in
        [("", "no certificate"), ("-----BEGIN CERTIFICATE-----\n", "cannot be read"), (damaged, "cannot be trusted")]
    {
        let error = TrustedCertificates::from_pem(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    // Several certificates are trusted together.
    TrustedCertificates::from_pem(&[&pem[..], &pem].concat()).unwrap();
    let shown = format!("{:?}", ServerCertificate::from_pem(&pem, &key).unwrap());
    assert_eq!(shown, "certificate of a server");
}
