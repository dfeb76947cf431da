//! [`ExecutorProcess`] and [`Peer`]: the executor as the controller knows it.
//!
//! # States
//!
//! | state | from | requests | left by |
//! |---|---|---|---|
//! | running | the greeting | are sent | a lane breaks; `end`; the drop of the last handle |
//! | ended | the process was waited for | fail with the reason, which never changes | – |
//!
//! The thread that finds its lane broken waits for the process, which is about to end. An executor that closes a lane and does
//! not end is killed after [`GRACE`](super::ending::GRACE), one that does not answer in time at once. A request of another thread finds its lane broken
//! then, too.
//!
//! # Threads
//! A listener waits for lanes of threads that the controller does not know, and starts a thread for each. It holds no strong
//! handle, and ends with the executor.
//!
//! # Forks
//! A forked child has copies of the sockets. It sends nothing and closes only its copies.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::arch::{Arch, FETCHES_EARLY};
use crate::base::ExecutorAddr;
use crate::error::{Error, ErrorKind, ExecutorCrash, Result};
use crate::executor::changes::{Batch, Changes, runs_code};
use crate::executor::crash_page::CrashPage;
use crate::executor::ending::{Ended, GRACE, LastWords, end_at_once, wait_or_kill};
use crate::executor::endpoint::Endpoint;
use crate::executor::lane::{Broken, Closer, Lane};
use crate::executor::outputs::Outputs;
use crate::executor::registered::Registered;
use crate::executor::sandbox::Sandbox;
use crate::os::OriginProcess;
use crate::sync::{Arc, HintUsize, MappedU64, Mutex, Ordering, StaticCell, Weak, plain_thread_local, spawn_for_code};
use crate::wire::{
    self, Answer, Facts, Question, QuestionAnswer, Request, Role, SandboxRules, Side, StandardStream, ToController,
    ToExecutor,
};

/// A process that runs the code of sessions of this process ([`JitBuilder::executor`](crate::JitBuilder::executor)).
///
/// A handle: clones are of the same process. It ends when the last clone and the last session with it are dropped, or when
/// this process ends.
#[derive(Clone)]
pub struct ExecutorProcess(pub(super) Arc<Peer>);

/// The variable that names the executor of sessions that choose none.
const PROGRAM: &str = "JITTISON_EXECUTOR";
/// The variable with the token of an executor that serves a network.
const TOKEN: &str = "JITTISON_EXECUTOR_TOKEN";

/// What differs between executors.
struct Parts {
    facts: Facts,
    arch: Arch,
    control: Lane,
    control_end: Closer,
    child: Option<Child>,
    crash_page: Option<CrashPage>,
    endpoint: Option<Endpoint>,
    is_copied: bool,
}

/// What the clones and the sessions share.
pub(super) struct Peer {
    /// Tells executors apart that one thread uses.
    number: u64,
    /// The process that started it.
    owner: OriginProcess,
    /// The process that was started.
    process: u32,
    pub(super) facts: Facts,
    /// That of its code.
    pub(super) arch: Arch,
    /// Carries requests for further lanes.
    control: Mutex<Lane>,
    /// The same socket, to end the executor while a thread waits for an answer.
    control_end: Closer,
    /// `None`: somebody else has started it.
    child: Option<Mutex<Child>>,
    crash_page: Option<CrashPage>,
    /// Where further lanes connect. `None`: lanes are sockets of this machine.
    endpoint: Option<Endpoint>,
    /// Its output, if that is forwarded.
    outputs: StaticCell<Arc<Outputs>>,
    /// What it must have before it runs code. `None`: memory is shared.
    pub(super) changes: Option<Changes>,
    /// The status with which its code has called `exit`, plus one. 0: it has not, as far as is known.
    exit_called: HintUsize,
    /// How long a thread waits for one message, in nanoseconds. 0: without a limit.
    time_to_answer: HintUsize,
    ended: StaticCell<Ended>,
    pub(super) registered: Arc<Registered>,
}

/// The number of an executor, the executor, and the lane of this thread.
type OwnLane = (u64, Weak<Peer>, Rc<Lane>);

plain_thread_local! {
    /// The lanes of this thread.
    static LANES: RefCell<Vec<OwnLane>> = const { RefCell::new(Vec::new()) };
}

impl ExecutorProcess {
    /// Starts a program that [serves](super::serve_standard_input), such as `jittison-executor`, without arguments. A name
    /// without `/` is searched in `PATH`.
    ///
    /// # Errors
    /// As [`start_command`](Self::start_command).
    pub fn start(program: impl AsRef<OsStr>) -> Result<ExecutorProcess> {
        ExecutorProcess::start_command(Command::new(program))
    }

    /// Starts a command that [serves](super::serve_standard_input). Its standard input is replaced by a socket; the executor
    /// takes over the standard input of this process when it is connected.
    ///
    /// # Errors
    /// The program cannot be started, or does not serve, or is of another version.
    pub fn start_command(command: Command) -> Result<ExecutorProcess> {
        ExecutorProcess::start_restricted(command, None)
    }

    /// As [`start_command`](Self::start_command). The executor restricts itself before anything is linked.
    ///
    /// # Errors
    /// As [`start_command`](Self::start_command). Also if a path of the sandbox does not exist, the program has more than one thread when
    /// it serves, or the kernel of the machine is older than Linux 6.2 or has no Landlock: nothing runs with fewer restrictions than
    /// asked for.
    pub fn start_sandboxed(command: Command, sandbox: &Sandbox) -> Result<ExecutorProcess> {
        ExecutorProcess::start_restricted(command, Some(sandbox.rules()))
    }

    fn start_restricted(mut command: Command, sandbox: Option<SandboxRules>) -> Result<ExecutorProcess> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |problem: String| Error::from(ErrorKind::File { path: name.clone(), problem });
        let (control, other) = Lane::pair().map_err(|error| failed(error.to_string()))?;
        let child = command.stdin(other).spawn().map_err(|error| failed(format!("it cannot be started: {error}")))?;
        // Its copy of the socket would keep the connection open when the executor ends.
        drop(command);
        ExecutorProcess::over(control, sandbox, Some(child))
            .map_err(|problem| failed(format!("it does not serve as an executor: {problem}")))
    }

    /// The process at the other end of a socket of this machine. If this fails, `child` has ended.
    pub(super) fn over(
        control: Lane,
        sandbox: Option<SandboxRules>,
        mut child: Option<Child>,
    ) -> std::result::Result<ExecutorProcess, String> {
        // A link must not work in memory that untrusted code changes. Who is no child of this process may run for a while after this process
        // has given it up, and memory that it shares would be used again. And a processor that fetches early needs its own process to
        // maintain its caches; that of an executor of another architecture may be one.
        let must_copy = sandbox.is_some() || child.is_none() || FETCHES_EARLY;
        let begin = || {
            let text = |error: std::io::Error| error.to_string();
            let control_end = control.closer().map_err(text)?;
            let (back, back_other) = Lane::pair().map_err(text)?;
            let (crash_page, page) = CrashPage::create().map_err(text)?;
            let facts = connect(&control, sandbox, &[back_other.as_fd(), page.as_fd(), std::io::stdin().as_fd()])?;
            let arch = facts.arch()?;
            Ok((control_end, back, crash_page, facts, arch))
        };
        let (control_end, back, crash_page, facts, arch) = begin().inspect_err(|_: &String| {
            child.as_mut().map(end_at_once);
        })?;
        let (crash_page, is_copied) = (Some(crash_page), must_copy || arch != Arch::NATIVE);
        let parts = Parts { facts, arch, control, control_end, child, crash_page, endpoint: None, is_copied };
        ExecutorProcess::new(parts, back).map_err(|error| error.to_string())
    }

    /// `child` is the executor, if this process has started it.
    pub(super) fn connect_to(endpoint: Endpoint, child: Option<Child>) -> std::result::Result<ExecutorProcess, String> {
        let broken = |broken: Broken| format!("{}: {broken}", endpoint.address);
        let back = endpoint.join(Role::Back)?;
        let control = endpoint.join(Role::Control)?;
        let control_end = control.closer().map_err(|error| error.to_string())?;
        control.send(&ToExecutor::Ask(Request::Start { sandbox: None }), &[]).map_err(broken)?;
        let facts = match control.receive_until(Some(Instant::now() + TIME_TO_START)).map_err(broken)?.0 {
            ToController::Answer(Answer::Facts(facts)) => facts,
            other => return Err(format!("{}: it answered {other:?}", endpoint.address)),
        };
        let arch = facts.arch().map_err(|problem| format!("{}: {problem}", endpoint.address))?;
        let (crash_page, endpoint, is_copied) = (None, Some(endpoint), true);
        let parts = Parts { facts, arch, control, control_end, child, crash_page, endpoint, is_copied };
        ExecutorProcess::new(parts, back).map_err(|error| error.to_string())
    }

    fn new(parts: Parts, back: Lane) -> Result<ExecutorProcess> {
        static NEXT: MappedU64 = MappedU64::new(0);
        let Parts { facts, arch, control, control_end, child, crash_page, endpoint, is_copied } = parts;
        let peer = Arc::new(Peer {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            owner: OriginProcess::new(),
            process: child.as_ref().map_or(facts.process, Child::id),
            facts,
            arch,
            control: Mutex::new(control),
            control_end,
            child: child.map(Mutex::new),
            crash_page,
            endpoint: endpoint.clone(),
            outputs: StaticCell::new(),
            changes: is_copied.then(Changes::new),
            exit_called: HintUsize::new(0),
            time_to_answer: HintUsize::new(0),
            ended: StaticCell::new(),
            registered: Arc::new(Registered::new()),
        });
        listen(Arc::downgrade(&peer), back, endpoint)?;
        Ok(ExecutorProcess(peer))
    }

    /// Whether code and data are copied to it, instead of shared with it.
    pub(super) fn is_copied(&self) -> bool {
        self.0.changes.is_some()
    }

    /// Starts the program that `JITTISON_EXECUTOR` names, if the environment has it. For tests and the command line.
    pub(crate) fn from_environment() -> Result<Option<ExecutorProcess>> {
        let Some(program) = std::env::var_os(PROGRAM).filter(|program| !program.is_empty()) else { return Ok(None) };
        if let Some(far) = program.to_str().and_then(|program| program.strip_prefix("stream:")) {
            return ExecutorProcess::start_far(far).map(Some);
        }
        let mut command = Command::new(program);
        // Sessions of the program that runs there stay there.
        command.env_remove(PROGRAM);
        ExecutorProcess::start_command(command).map(Some)
    }

    /// Starts a program that serves a network of this machine, and connects to it.
    fn start_far(program: &str) -> Result<ExecutorProcess> {
        let failed = |problem: String| Error::from(ErrorKind::File { path: program.to_string(), problem });
        let begin = || -> std::io::Result<(Endpoint, Child)> {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let mut random = [0; 16];
            std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
            let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            let address = listener.local_addr()?;
            let endpoint = Endpoint { address, token: token.clone().into_bytes(), encryption: None };
            let mut command = Command::new(program);
            command.args(["--listen", "stdin"]).env_remove(PROGRAM).env(TOKEN, token).stdin(OwnedFd::from(listener));
            Ok((endpoint, command.spawn()?))
        };
        let (endpoint, child) = begin().map_err(|error| failed(format!("it cannot be started: {error}")))?;
        ExecutorProcess::connect_to(endpoint, Some(child)).map_err(failed)
    }

    /// The id of the process that was started.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The architecture that its sessions link for: `e_machine` of the objects, 62 for x86-64 and 183 for AArch64.
    pub fn machine(&self) -> u16 {
        self.0.arch.e_machine()
    }

    /// Kills the executor at once, also if its code runs or hangs. Threads that wait for it get
    /// [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded).
    ///
    /// # Errors
    /// It had ended before, or the kernel refuses.
    pub fn kill(&self) -> Result<()> {
        self.0.check()?;
        self.0
            .kill()
            .map_err(|error| Error::other(format!("the executor process {} cannot be killed: {error}", self.id())))?;
        self.0.wait("by `ExecutorProcess::kill`");
        Ok(())
    }

    /// Limits how long the executor may let a thread of this process wait: for the result of a call, an initialiser or `main`, the
    /// address of a symbol, and whatever else it is asked. When the time is over, the executor is killed, and requests fail with
    /// [`ErrorKind::ExecutorEnded`](crate::ErrorKind::ExecutorEnded). `None`, as after the start: threads wait for ever.
    ///
    /// The time begins anew when the executor asks this process something, such as the address of a lazy function. Waits that have
    /// begun keep the limit that they began with.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), jittison::Error> {
    /// let executor = jittison::executor::ExecutorProcess::start("jittison-executor")?;
    /// executor.set_time_to_answer(Some(std::time::Duration::from_secs(2)));
    /// # Ok(()) }
    /// ```
    pub fn set_time_to_answer(&self, limit: Option<Duration>) {
        // A limit of zero is the shortest one. One of more than 500 years is none.
        let nanoseconds = limit.map_or(0, |limit| limit.as_nanos().max(1).try_into().unwrap_or(0));
        self.0.time_to_answer.store(nanoseconds, Ordering::Relaxed);
    }

    /// Ends the executor as by `exit(0)`, and waits until it has ended. It writes what its C library has buffered. Sessions
    /// with this executor cannot call code any more.
    ///
    /// # Errors
    /// It had ended before, or it did not end in time and was killed.
    pub fn end(&self) -> Result<()> {
        self.0.check()?;
        self.0.control_end.close();
        let ended = self.0.wait("when it was asked to");
        match ended.status {
            Some(0) => Ok(()),
            // Its status is not known.
            None if self.0.child.is_none() => Ok(()),
            _ => Err(self.0.error(ended)),
        }
    }
}

/// Exchanges the greetings, and passes on the socket for lanes of the executor, the page for its crash, and the standard input.
fn connect(
    control: &Lane,
    sandbox: Option<SandboxRules>,
    descriptors: &[BorrowedFd<'_>],
) -> std::result::Result<Facts, String> {
    let deadline = Some(Instant::now() + TIME_TO_START);
    let broken = |broken: Broken| broken.to_string();
    control.greet(Side::Controller, descriptors).map_err(broken)?;
    control.receive_greeting(Side::Executor, deadline).map_err(broken)?;
    control.send(&ToExecutor::Ask(Request::Start { sandbox }), &[]).map_err(broken)?;
    match control.receive_until(deadline).map_err(broken)? {
        (ToController::Answer(Answer::Facts(facts)), _) => Ok(facts),
        (ToController::Answer(Answer::Failed(problem)), _) => Err(problem),
        (other, _) => Err(broken(Broken::Nonsense(format!("{other:?} after the greeting")))),
    }
}

/// Starts the listener.
fn listen(peer: Weak<Peer>, back: Lane, endpoint: Option<Endpoint>) -> Result<()> {
    let body = move || {
        while let Ok((ToController::Ask(Question::OpenLane { number }), descriptors)) = back.receive() {
            let lane = match (&endpoint, number, descriptors.into_iter().next()) {
                (Some(endpoint), Some(number), None) => match endpoint.join(Role::BackLane(number)) {
                    Ok(lane) => lane,
                    Err(_) => break,
                },
                (None, None, Some(descriptor)) => Lane::new(descriptor.into()),
                _ => break,
            };
            let peer = peer.clone();
            let body = move || serve_questions(&peer, Rc::new(lane));
            // Without a thread the lane closes, and the executor's thread learns that nobody answers.
            let _ = spawn_for_code("jittison-lane", body);
            if back.send(&ToExecutor::Answer(QuestionAnswer::Done), &[]).is_err() {
                break;
            }
        }
    };
    spawn_for_code("jittison-lanes", body)
        .map_err(|error| Error::other(format!("no thread for the executor can be started: {error}")))
}

/// Answers the questions of a thread of the executor. Requests that this thread makes meanwhile use the same lane.
fn serve_questions(peer: &Weak<Peer>, lane: Rc<Lane>) {
    let number = peer.upgrade().map(|peer| peer.number);
    if let Some(number) = number {
        LANES.with_borrow_mut(|lanes| lanes.push((number, peer.clone(), lane.clone())));
    }
    while let Ok((ToController::Ask(question), _)) = lane.receive() {
        let Some(peer) = peer.upgrade() else { break };
        let answer = peer.answer(question);
        if lane.send(&ToExecutor::Answer(answer), &[]).is_err() {
            break;
        }
    }
    // The thread of the executor has ended. A later request of this thread opens another lane.
    LANES.with_borrow_mut(|lanes| lanes.retain(|(.., other)| !Rc::ptr_eq(other, &lane)));
}

impl Peer {
    /// Sends a request and returns its answer. Answers what the executor asks meanwhile.
    ///
    /// # Errors
    /// The text of [`Answer::Failed`], or how the executor has ended.
    pub(super) fn ask(self: &Arc<Self>, request: Request) -> Result<Answer> {
        self.ask_with(request, &[])
    }

    /// As [`ask`](Self::ask), with descriptors.
    pub(super) fn ask_with(self: &Arc<Self>, request: Request, descriptors: &[BorrowedFd<'_>]) -> Result<Answer> {
        self.check()?;
        if runs_code(&request) {
            self.send_changes()?;
        }
        // Nothing is sent if it is too long.
        let too_long = |bad| Error::other(format!("a request to the executor process {}: {bad}", self.id()));
        let request = ToExecutor::Ask(request);
        let frame = wire::encode(&request).map_err(too_long)?;
        let lane = self.lane()?;
        let answer = self.converse(&lane, &frame, descriptors).map_err(|broken| self.broken(&request, &broken))?;
        match answer {
            Answer::Failed(problem) => Err(Error::other(problem)),
            answer => Ok(answer),
        }
    }

    /// As [`ask`](Self::ask), for a request whose answer is `Done`.
    pub(super) fn tell(self: &Arc<Self>, request: Request) -> Result<()> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sends what the executor must have before it runs code. Nothing if memory is shared.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(super) fn send_changes(self: &Arc<Self>) -> Result<()> {
        let Some(taken) = &self.changes else { return Ok(()) };
        self.check()?;
        let lane = self.lane()?;
        while let Some(Batch { changes, sending }) = taken.take() {
            let request = ToExecutor::Ask(Request::Write { changes });
            let frame = wire::encode(&request).map_err(Broken::from);
            let answer = frame.and_then(|frame| self.converse(&lane, &frame, &[]));
            // The end of an executor drops what its threads held, which may change memory.
            drop(sending);
            match answer {
                Ok(Answer::Done) => {}
                Ok(other) => {
                    // It lacks bytes that code needs, so it must run none. This fails only if the process has ended.
                    let _ = self.kill();
                    return Err(self.error(self.wait(&format!("because it did not take what was linked: {other:?}"))));
                }
                Err(broken) => return Err(self.broken(&request, &broken)),
            }
        }
        Ok(())
    }

    pub(super) fn is_far(&self) -> bool {
        self.endpoint.is_some()
    }

    /// The answer to a question. The executor has what running code may reach with it.
    fn answer(self: &Arc<Self>, question: Question) -> QuestionAnswer {
        if let Question::ExitHook { status: Some(status), .. } = &question {
            self.exit_called.store((*status as u32 & 0xff) as usize + 1, Ordering::Relaxed);
        }
        let answer = self.registered.answer(question);
        match self.send_changes() {
            Ok(()) => answer,
            Err(error) => QuestionAnswer::Failed(error.to_string()),
        }
    }

    /// Ends the executor at once.
    fn kill(&self) -> std::io::Result<()> {
        match &self.child {
            Some(child) => child.lock().kill(),
            // It ends when its controller is gone.
            None => {
                self.control_end.close();
                Ok(())
            }
        }
    }

    /// The error for an answer that does not fit its request.
    pub(super) fn unexpected(&self, answer: &Answer) -> Error {
        Error::other(format!(
            "the executor process {} answered {answer:?}, which does not fit; start an executor of this version",
            self.process
        ))
    }

    /// Checks that the executor runs, and that this is the process that started it.
    pub(super) fn check(&self) -> Result<()> {
        match self.ended.get() {
            Some(ended) => Err(self.error(ended)),
            None if !self.owner.is_this() => Err(Error::other(format!(
                "the executor process {} belongs to the parent of this forked process; nothing was done; start an executor in \
                 this process, and link into a session with it",
                self.process
            ))),
            None => Ok(()),
        }
    }

    /// The exit status, if the executor has called `exit`.
    pub(super) fn exit_status(&self) -> Option<i32> {
        self.ended.get()?.status
    }

    /// When a message that a thread waits for from now on is too late.
    fn deadline(&self) -> Option<Instant> {
        match self.time_to_answer.load(Ordering::Relaxed) {
            0 => None,
            nanoseconds => Instant::now().checked_add(Duration::from_nanos(nanoseconds as u64)),
        }
    }

    fn converse(
        self: &Arc<Self>,
        lane: &Lane,
        frame: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> std::result::Result<Answer, Broken> {
        lane.send_frame(frame, descriptors, self.deadline())?;
        loop {
            match lane.receive_until(self.deadline())?.0 {
                ToController::Answer(answer) => return Ok(answer),
                ToController::Ask(question) => {
                    let answer = wire::encode(&ToExecutor::Answer(self.answer(question)))?;
                    lane.send_frame(&answer, &[], self.deadline())?;
                }
                other => return Err(Broken::Nonsense(format!("{other:?} on a lane"))),
            }
        }
    }

    /// The lane of this thread. Late in the end of a thread, a new one.
    fn lane(self: &Arc<Self>) -> Result<Rc<Lane>> {
        let find = |lanes: &RefCell<Vec<OwnLane>>| {
            let lanes = lanes.borrow();
            lanes.iter().find(|(number, ..)| *number == self.number).map(|(.., lane)| lane.clone())
        };
        if let Ok(Some(lane)) = LANES.try_with(find) {
            return Ok(lane);
        }
        let lane = Rc::new(self.open_lane()?);
        let entry = (self.number, Arc::downgrade(self), lane.clone());
        // After the variable is destroyed, the lane serves one request.
        let _ = LANES.try_with(|lanes| {
            let mut lanes = lanes.borrow_mut();
            lanes.retain(|(_, peer, _)| peer.strong_count() > 0);
            lanes.push(entry);
        });
        Ok(lane)
    }

    /// Opens a connection that is a standard stream of the executor.
    pub(super) fn join_stream(&self, stream: StandardStream) -> std::result::Result<UnixStream, String> {
        let Some(endpoint) = &self.endpoint else {
            return Err("it is not reached by a network".to_string());
        };
        self.check().map_err(|error| error.to_string())?;
        endpoint.join(Role::Stream(stream)).and_then(Lane::into_stream)
    }

    /// Says which output this process forwards. False if it does already.
    pub(super) fn set_outputs(&self, outputs: Arc<Outputs>) -> bool {
        let mut is_new = false;
        self.outputs.get_or_init(|| {
            is_new = true;
            outputs
        });
        is_new
    }

    fn open_lane(&self) -> Result<Lane> {
        if let Some(endpoint) = &self.endpoint {
            let lane = endpoint.join(Role::Lane);
            return lane.map_err(|problem| self.error(self.wait(&format!("or cannot be reached ({problem})"))));
        }
        let (own, others) =
            Lane::with_mailboxes().map_err(|error| Error::other(format!("a lane cannot be made: {error}")))?;
        let request = ToExecutor::Ask(Request::OpenLane);
        let answer = {
            let control = self.control.lock();
            let sent = control.send(&request, &others.each_ref().map(|other| other.as_fd()));
            sent.and_then(|()| control.receive_until(self.deadline()))
        };
        match answer {
            Ok((ToController::Answer(Answer::Done), _)) => Ok(own),
            Ok((ToController::Answer(Answer::Failed(problem)), _)) => Err(Error::other(problem)),
            Ok((other, _)) => Err(Error::other(format!("the executor answered {other:?} to a request for a lane"))),
            Err(broken) => Err(self.broken(&request, &broken)),
        }
    }

    /// Waits for the end of an executor whose lane is broken. Returns the error of the request.
    fn broken(&self, message: &ToExecutor, broken: &Broken) -> Error {
        use ToExecutor::Ask;
        let during = match message {
            Ask(Request::Call { address, .. }) => format!("it called the function at {address:#x}"),
            Ask(Request::RunInitializer { address }) => format!("it ran the initialiser or finaliser at {address:#x}"),
            Ask(Request::CallMain { address, .. }) => format!("it ran `main` at {address:#x}"),
            Ask(Request::RunExitHandlers { .. }) => "it ran exit handlers".to_string(),
            Ask(Request::FindSymbols { names }) => format!("it searched for `{}`", names.join("`, `")),
            Ask(Request::OpenLibrary { name }) => format!("it opened the library `{name}`"),
            _ => "it served a request".to_string(),
        };
        let during = match broken {
            Broken::Closed => during,
            Broken::Late => {
                // It fails only if the process has ended.
                let _ = self.kill();
                format!("{during} and did not answer in the time of `ExecutorProcess::set_time_to_answer`")
            }
            other => format!("{during} ({other})"),
        };
        self.error(self.wait(&format!("while {during}")))
    }

    /// Waits for the end of the process, and kills it after a while. `when` completes the text.
    fn wait(&self, when: &str) -> &Ended {
        let ended = self.ended.get_or_init(|| {
            let Some(child) = &self.child else {
                let mut said = LastWords::receive(&self.control_end);
                said.crash = said.crash.or_else(|| self.crash_page.as_ref()?.crash());
                self.control_end.close();
                if let Some(outputs) = self.outputs.get() {
                    outputs.wait_until(Instant::now() + GRACE);
                }
                let called = self.exit_called.load(Ordering::Relaxed).checked_sub(1).map(|status| status as i32);
                return Ended::far(said, called, when);
            };
            let (status, was_killed) = wait_or_kill(&mut child.lock());
            let crash = || match &self.crash_page {
                Some(page) => page.crash(),
                None => LastWords::receive(&self.control_end).crash,
            };
            Ended::of_child(status.filter(|_| !was_killed), crash, when)
        });
        self.registered.drop_holds();
        ended
    }

    pub(super) fn id(&self) -> u32 {
        self.process
    }

    fn error(&self, ended: &Ended) -> Error {
        let crash = ended.crash.as_ref().map(|crash| {
            let backtrace = crash.frames.iter().map(|frame| ExecutorAddr::new(*frame)).collect();
            Box::new(ExecutorCrash { address: ExecutorAddr::new(crash.address), backtrace, located: Vec::new() })
        });
        ErrorKind::ExecutorEnded { process: self.process, how: ended.how.clone(), crash }.into()
    }
}

/// How long an executor may take to greet. A program may do other work before it serves.
const TIME_TO_START: Duration = Duration::from_secs(30);

impl Drop for Peer {
    fn drop(&mut self) {
        if self.owner.is_this() && self.ended.get().is_none() {
            self.control_end.close();
            self.wait("when it was no longer needed");
        }
    }
}

impl fmt::Debug for ExecutorProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "executor process {}", self.id())
    }
}
