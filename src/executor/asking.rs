//! [`ask`]: questions of the executor to its controller, and the lane of each thread.
//!
//! A thread that waits for the answer to a question serves the requests that the controller makes meanwhile.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::executor::lane::Lane;
use crate::sync::{Mutex, StaticCell, plain_thread_local};
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
}

plain_thread_local! {
    /// The lane of this thread.
    static LANE: RefCell<Option<Rc<Lane>>> = const { RefCell::new(None) };
}

/// Makes this process an executor.
///
/// # Errors
/// It is one already.
pub(super) fn start_asking(requests: Box<dyn AnswersRequests>, back: Lane) -> Result<()> {
    let serving = Serving { requests, back: Mutex::new(back) };
    EXECUTOR.set(serving).map_err(|_| Error::other("this process is an executor already"))
}

/// Answers requests on the lane of this thread until it closes.
pub(super) fn serve_lane(lane: Rc<Lane>) {
    LANE.set(Some(lane.clone()));
    let Some(serving) = EXECUTOR.get() else { return };
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
    let (own, other) = Lane::pair().ok()?;
    let back = serving.back.lock();
    back.send(&ToController::Ask(Question::OpenLane), &[other.as_fd()]).ok()?;
    match back.receive().ok()? {
        (ToExecutor::Answer(QuestionAnswer::Done), _) => Some(own),
        _ => None,
    }
}
