//! A server that forks an executor for each connection.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use jittison::executor::ExecutorProcess;
use jittison::{ErrorKind, Jit};
use jittison_test_tools::{PrivateDir, is_rerun, rerun, this_test};

use crate::c;
use crate::sandbox::{is_message, shared_files};

/// Forks a child for each connection. The children share its environment.
fn run_server(path: &Path) -> ! {
    let listener = UnixListener::bind(path).unwrap();
    // SAFETY: the children are not waited for, so the kernel forgets them.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    loop {
        let (socket, _) = listener.accept().unwrap();
        // SAFETY: the child uses no lock that another thread of the server may hold.
        if unsafe { libc::fork() } == 0 {
            drop(listener);
            let Err(error) = jittison::executor::serve(socket);
            eprintln!("{error}");
            // SAFETY: takes no pointer.
            unsafe { libc::_exit(1) };
        }
    }
}

struct Server {
    child: Child,
    _directory: PrivateDir,
    path: std::path::PathBuf,
}

impl Server {
    fn start(test: &str) -> Server {
        let directory = PrivateDir::new();
        let path = directory.path("socket");
        let mut command = rerun(test);
        command.env("JITTISON_TEST_SOCKET", &path).env("JITTISON_TEST_STATE", "5").stdout(Stdio::null());
        let child = command.spawn().unwrap();
        Server { child, _directory: directory, path }
    }

    fn connect(&self) -> ExecutorProcess {
        let end = Instant::now() + Duration::from_secs(60);
        let socket = loop {
            match UnixStream::connect(&self.path) {
                Ok(socket) => break socket,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        ExecutorProcess::from_socket(socket, None).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails only if the server has ended.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[test]
fn a_server_forks_executors_that_share_its_state_and_nothing_else() {
    let test = this_test!();
    if is_rerun(test) {
        run_server(Path::new(&std::env::var_os("JITTISON_TEST_SOCKET").unwrap()));
    }
    let Some(object) = c(
        "#include <stdlib.h>\n#include <unistd.h>\nlong state(void) { return atoi(getenv(\"JITTISON_TEST_STATE\")); } \
         void set(void) { setenv(\"JITTISON_TEST_STATE\", \"6\", 1); } long process(void) { return getpid(); } \
         long crash(long at) { return *(volatile long *)at; }",
    ) else {
        return;
    };
    let server = Server::start(test);
    let start = || {
        let executor = server.connect();
        let jit = Jit::builder().executor(&executor).build().unwrap();
        jit.add_object(&jit.main_dylib().default_tracker().unwrap(), "state.o", object.as_slice()).unwrap();
        (executor, jit)
    };
    let call = |jit: &Jit, name: &str| jit.remote_function(jit.main_dylib(), name).unwrap().call(&[16]);
    let ((first, one), (second, other)) = (start(), start());
    assert_eq!((call(&one, "state").unwrap(), call(&other, "state").unwrap()), (5, 5));
    call(&one, "set").unwrap();
    assert_eq!((call(&one, "state").unwrap(), call(&other, "state").unwrap()), (6, 5));
    assert_eq!(call(&one, "process").unwrap(), u64::from(first.id()));
    assert_ne!(first.id(), second.id());
    // It may run for a moment after this process has given it up, so its code is its own.
    let shared = shared_files(&first);
    assert!(!shared.is_empty() && shared.iter().all(|file| is_message(file)), "{shared:?}");
    // A crash is one of this executor only, and is told as one of a child of this process.
    let error = call(&one, "crash").unwrap_err();
    let ErrorKind::ExecutorEnded { crash: Some(crash), .. } = error.kind() else { panic!("{error}") };
    assert_eq!(crash.address().value(), 16);
    assert!(error.to_string().contains("SIGSEGV") && error.to_string().contains("crash+0x"), "{error}");
    assert_eq!(call(&other, "state").unwrap(), 5);
    // The server goes on, and its children end with their controllers.
    let (third, last) = start();
    assert_eq!(call(&last, "state").unwrap(), 5);
    let ids = [first.id(), second.id(), third.id()];
    drop((one, other, last, first, second, third));
    let end = Instant::now() + Duration::from_secs(60);
    while ids.iter().any(|id| Path::new(&format!("/proc/{id}")).exists()) {
        assert!(Instant::now() < end, "{ids:?} go on");
        std::thread::sleep(Duration::from_millis(5));
    }
}
