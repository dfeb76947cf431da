//! [`ask`]: questions of the executor to its controller, and the lane of each thread.
//!
//! A thread that waits for the answer to a question serves the requests that the controller makes meanwhile.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::executor::endpoint::TIME_TO_CONNECT;
use crate::executor::lane::Lane;
use crate::os::SignalStack;
use crate::sync::{Condvar, Mutex, StaticCell, plain_thread_local};
use crate::wire::{Answer, Question, QuestionAnswer, Request, ToController, ToExecutor};

/// Does what requests say.
pub(super) trait AnswersRequests: Send + Sync {
    fn answer(&self, request: Request, descriptors: Vec<OwnedFd>) -> Answer;
}

/// The executor of this process. There is one at most.
static EXECUTOR: StaticCell<Serving> = StaticCell::new();

struct Serving {
    requests: Box<dyn AnswersRequests>,
    /// Carries questions for further lanes.
    back: Mutex<Lane>,
    /// By a network, the controller opens lanes.
    back_lanes: Option<BackLanes>,
}

/// The lanes that threads wait for.
struct BackLanes {
    waiting: Mutex<Waiting>,
    has_come: Condvar,
}

struct Waiting {
    next: u64,
    /// By number: `None` until the lane has come.
    by_number: HashMap<u64, Option<Lane>>,
}

plain_thread_local! {
    /// The lane of this thread.
    static LANE: RefCell<Option<Rc<Lane>>> = const { RefCell::new(None) };
}

/// Makes this process an executor. `is_far` says that its controller reaches it by a network.
///
/// # Errors
/// It is one already.
pub(super) fn start_asking(requests: Box<dyn AnswersRequests>, back: Lane, is_far: bool) -> Result<()> {
    let waiting = || Mutex::new(Waiting { next: 1, by_number: HashMap::new() });
    let back_lanes = is_far.then(|| BackLanes { waiting: waiting(), has_come: Condvar::new() });
    let serving = Serving { requests, back: Mutex::new(back), back_lanes };
    EXECUTOR.set(serving).map_err(|_| Error::other("this process is an executor already"))
}

/// Answers requests on the lane of this thread until it closes.
pub(super) fn serve_lane(lane: Rc<Lane>) {
    LANE.set(Some(lane.clone()));
    let Some(serving) = EXECUTOR.get() else { return };
    // Without it, a crash may be reported without its backtrace.
    let _stack = SignalStack::set();
    while let Ok((ToExecutor::Ask(request), descriptors)) = lane.receive() {
        let answer = serving.requests.answer(request, descriptors);
        if lane.send(&ToController::Answer(answer), &[]).is_err() {
            break;
        }
    }
    // The thread of the controller has ended. Destructors of this thread that have a question open another lane.
    LANE.set(None);
}

/// Asks the controller, on the lane of this thread. Serves what the controller requests meanwhile. `None` if the controller is
/// gone.
pub(super) fn ask(question: &Question) -> Option<QuestionAnswer> {
    let serving = EXECUTOR.get()?;
    let lane = match LANE.try_with(|lane| lane.borrow().clone()) {
        Ok(Some(lane)) => lane,
        known => {
            let lane = Rc::new(open_back_lane(serving)?);
            if known.is_ok() {
                LANE.set(Some(lane.clone()));
            }
            lane
        }
    };
    lane.send(&ToController::Ask(question.clone()), &[]).ok()?;
    loop {
        match lane.receive().ok()? {
            (ToExecutor::Answer(answer), _) => return Some(answer),
            (ToExecutor::Ask(request), descriptors) => {
                let answer = serving.requests.answer(request, descriptors);
                lane.send(&ToController::Answer(answer), &[]).ok()?;
            }
        }
    }
}

/// A lane with a new thread of the controller.
fn open_back_lane(serving: &Serving) -> Option<Lane> {
    let Some(back_lanes) = &serving.back_lanes else {
        let (own, other) = Lane::pair().ok()?;
        let question = ToController::Ask(Question::OpenLane { number: None });
        return request_lane(serving, &question, &[other.as_fd()]).then_some(own);
    };
    let number = back_lanes.begin();
    let is_open = request_lane(serving, &ToController::Ask(Question::OpenLane { number: Some(number) }), &[]);
    back_lanes.take(number, is_open)
}

impl BackLanes {
    /// The number of a lane to wait for.
    fn begin(&self) -> u64 {
        let mut waiting = self.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.by_number.insert(number, None);
        number
    }

    /// Waits for the lane if the controller has opened it, and forgets its number.
    fn take(&self, number: u64, is_open: bool) -> Option<Lane> {
        let deadline = Instant::now() + TIME_TO_CONNECT;
        let mut waiting = self.waiting.lock();
        while is_open && matches!(waiting.by_number.get(&number), Some(None)) && Instant::now() < deadline {
            self.has_come.wait_until(&mut waiting, deadline);
        }
        waiting.by_number.remove(&number)?
    }

    /// A lane has come. One that nobody waits for closes.
    fn give(&self, number: u64, lane: Lane) {
        if let Some(place) = self.waiting.lock().by_number.get_mut(&number) {
            *place = Some(lane);
        }
        self.has_come.notify_all();
    }
}

/// Asks for a lane, and returns whether the controller has opened one.
fn request_lane(serving: &Serving, question: &ToController, descriptors: &[BorrowedFd<'_>]) -> bool {
    let back = serving.back.lock();
    let answered = back.send(question, descriptors).and_then(|()| back.receive());
    matches!(answered, Ok((ToExecutor::Answer(QuestionAnswer::Done), _)))
}

/// Gives a lane to the thread that has asked for it.
pub(super) fn give_back_lane(number: u64, lane: Lane) {
    if let Some(back_lanes) = EXECUTOR.get().and_then(|serving| serving.back_lanes.as_ref()) {
        back_lanes.give(number, lane);
    }
}
