//! The pages. Edit them while the server runs.
//!
//! Try: another text; a new page in `answer`; a `panic!` in one; an error that the compiler finds; another field in `Note`, which is
//! refused, because the notes in memory have the old layout.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// What the pages share. It keeps its values.
#[derive(Default, Serialize, Deserialize)]
pub struct Book {
    visits: AtomicU64,
    notes: Mutex<Vec<Note>>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    text: String,
    visit: u64,
}

pub async fn answer(book: Arc<Book>, path: String) -> String {
    let visit = book.visits.fetch_add(1, Ordering::Relaxed) + 1;
    match path.split('/').collect::<Vec<_>>()[1..] {
        [""] => format!("hello, visitor {visit}\n"),
        ["squares"] => squares(5).await,
        ["book"] => serde_json::to_string(&*book).unwrap_or_default() + "\n",
        ["add", text] => add(&book, Note { text: text.to_string(), visit }),
        _ => format!("there is no {path}\n"),
    }
}

/// Each number is the result of a task.
async fn squares(count: u64) -> String {
    let tasks: Vec<_> = (1..=count).map(|n| tokio::spawn(async move { square(n) })).collect();
    let mut squares = String::new();
    for task in tasks {
        squares += &format!("{} ", task.await.unwrap_or_default());
    }
    squares + "\n"
}

fn square(n: u64) -> u64 {
    n * n
}

fn add(book: &Book, note: Note) -> String {
    let mut notes = book.notes.lock().unwrap_or_else(PoisonError::into_inner);
    notes.push(note);
    format!("{} notes\n", notes.len())
}

/// Called each second by a thread of its own.
pub fn tick(book: &Book, second: u64) {
    if second % 10 == 0 {
        println!("up for {second} s, {} visits", book.visits.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notes_are_in_the_book() {
        let book = Arc::new(Book::default());
        assert_eq!(answer(book.clone(), "/add/milk".to_string()).await, "1 notes\n");
        let text = answer(book, "/book".to_string()).await;
        let read: Book = serde_json::from_str(&text).unwrap();
        assert_eq!(read.notes.lock().unwrap()[0].text, "milk");
    }

    #[tokio::test]
    async fn squares_are_products() {
        assert_eq!(squares(5).await, "1 4 9 16 25 \n");
    }
}
