//! What each event, output and key changes, and what is drawn.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use serde_json::{Value, json};

use crate::screen::draw::draw;
use crate::screen::layout::{Layout, Pane};
use crate::screen::output_lines::{MAX_LINE_BYTES, MAX_LINES, OutputLines};
use crate::screen::state::{Key, LastReload, MAX_EVENTS, Screen};
use crate::screen::supervise::key_of;

const AREA: Rect = Rect { x: 0, y: 0, width: 100, height: 30 };

const DOCUMENTED: Rect = Rect { x: 0, y: 0, width: 110, height: 30 };

const BROKEN: &str = "step.c: In function 'step':
step.c:2:12: error: 'cal' undeclared
    2 |     return cal + n;
      |            ^~~
";

fn screen_of(events: &[Value]) -> Screen {
    let mut screen = Screen::default();
    for (second, event) in (0..).zip(events) {
        screen.add_event_line(&event.to_string(), Duration::from_secs(second));
    }
    screen
}

fn watching() -> Value {
    json!({ "event": "watching", "objects": ["main.o", "step.o"], "sources": [], "text": "watching main.o, step.o" })
}

fn memory() -> Value {
    json!({
        "event": "memory",
        "objects": [
            { "object": "main.o", "version": 4, "functions": 2, "code_bytes": 210, "held_by": [] },
            { "object": "step.o", "version": 3, "functions": 4, "code_bytes": 430, "held_by": [] },
        ],
        "replaced": [
            { "object": "step.o", "version": 2, "functions": 4, "code_bytes": 412, "held_by": ["a call of thread 7124, for 12.5s", "2 owned handles"] },
            { "object": "main.o", "version": 1, "functions": 2, "code_bytes": 208, "held_by": [] },
            { "object": "step.o", "version": 0, "functions": 3, "code_bytes": 400, "held_by": ["the program, which was linked with it"] },
        ],
        "replaced_in_all": 3,
        "replaced_bytes": 1020,
        "pools": [
            { "kind": "code", "requested": 1452, "reserved": 2048, "resident": 8192 },
            { "kind": "constants", "requested": 300, "reserved": 512, "resident": 4096 },
            { "kind": "data", "requested": 64, "reserved": 128, "resident": 4096 },
        ],
        "resident": 20480,
        "records": 5000,
    })
}

fn reloaded() -> Value {
    json!({
        "event": "reloaded", "object": "step.o", "version": 3, "code_bytes_before": 412, "code_bytes": 430,
        "milliseconds": { "total": 151.31, "build": 150.0, "read": 0.11, "link": 0.96, "commit": 0.05 },
        "text": "step.o version 3: changed step",
    })
}

fn refused(error: &str) -> Value {
    json!({ "event": "refused", "object": "step.o", "objects": ["step.o"], "error": error, "text": format!("{error}; the running code stays") })
}

fn build_failed(output: &str) -> Value {
    json!({ "event": "build_failed", "status": "exit status: 1", "output": output, "text": "the build failed" })
}

/// The text that is drawn, one line for each row.
fn drawn(screen: &Screen, area: Rect) -> String {
    let mut terminal = Terminal::new(TestBackend::new(area.width, area.height)).unwrap();
    terminal.draw(|frame| draw(frame, screen)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y: u16| (0..area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..area.height).map(|y| row(y).trim_end().to_string() + "\n").collect()
}

fn lines_of(screen: &Screen, pane: Pane) -> Vec<String> {
    screen.lines(pane, 80)
}

#[test]
fn the_memory_event_fills_the_objects_and_the_replaced_versions() {
    let screen = screen_of(&[memory()]);
    let step = &screen.objects["step.o"];
    assert_eq!((step.version, step.functions, step.code_bytes, &step.reload), (3, 4, 430, &None));
    let expected = [
        "step.o version 2, 412 bytes: a call of thread 7124, for 12.5s; 2 owned handles",
        "main.o version 1, 208 bytes: nothing; it is being freed",
        "step.o version 0, 400 bytes: the program, which was linked with it",
    ];
    assert_eq!(lines_of(&screen, Pane::Replaced), expected);
    assert_eq!((screen.memory.replaced_count, screen.memory.replaced_bytes), (3, 1020));
    assert_eq!(screen.memory.pools[0], ("code".to_string(), [1452, 2048, 8192]));
    assert_eq!((screen.memory.resident, screen.memory.records), (20480, 5000));
    assert_eq!(lines_of(&screen, Pane::Events), Vec::<String>::new());
}

#[test]
fn versions_that_the_event_leaves_out_are_counted() {
    let mut event = memory();
    event["replaced_in_all"] = 40.into();
    assert_eq!(lines_of(&screen_of(&[event]), Pane::Replaced).last().map(String::as_str), Some("and 37 older ones"));
}

#[test]
fn the_program_is_started_when_its_files_are_watched() {
    assert!(!screen_of(&[memory()]).is_started);
    assert!(screen_of(&[memory(), watching()]).is_started);
}

#[test]
fn a_reload_sets_the_version_the_time_and_the_steps_of_its_object() {
    let screen = screen_of(&[memory(), reloaded()]);
    let step = &screen.objects["step.o"];
    let times = [Some(151.31), Some(150.0), Some(0.11), Some(0.96), Some(0.05)];
    assert_eq!(step.reload, Some(LastReload { at: Duration::from_secs(1), times }));
    assert_eq!((step.version, step.functions, step.code_bytes), (3, 4, 430));
    assert_eq!(screen.objects["main.o"].reload, None);
    assert_eq!(lines_of(&screen, Pane::Events), ["0:01 step.o version 3: changed step"]);
}

#[test]
fn an_error_stays_until_the_next_one_and_is_past_after_a_reload() {
    let mut screen = screen_of(&[build_failed("step.c:1: error: one\n\tint x\n")]);
    assert_eq!(lines_of(&screen, Pane::Error), ["step.c:1: error: one", "        int x"]);
    screen.add_event_line(&refused("`step` has another type").to_string(), Duration::ZERO);
    assert_eq!(lines_of(&screen, Pane::Error), ["`step` has another type"]);
    let is_past = |screen: &Screen| screen.error.as_ref().map(|error| (error.title.clone(), error.is_past));
    assert_eq!(is_past(&screen), Some(("refused: step.o".to_string(), false)));
    screen.add_event_line(&reloaded().to_string(), Duration::ZERO);
    assert_eq!(is_past(&screen), Some(("refused: step.o".to_string(), true)));
    assert_eq!(lines_of(&screen, Pane::Error), ["`step` has another type"]);
}

#[test]
fn an_object_that_did_not_change_is_an_event_and_repairs_an_error() {
    let unchanged = json!({ "event": "unchanged", "object": "step.o", "text": "step.o: no function changed" });
    let screen = screen_of(&[refused("no"), unchanged]);
    assert!(screen.error.as_ref().is_some_and(|error| error.is_past));
    assert_eq!(lines_of(&screen, Pane::Events).last().map(String::as_str), Some("0:01 step.o: no function changed"));
}

#[test]
fn an_object_that_is_not_followed_is_an_event() {
    let screen =
        screen_of(&[json!({ "event": "not_followed", "object": "a", "error": "b", "text": "a does not follow: b" })]);
    assert_eq!(lines_of(&screen, Pane::Events), ["0:00 a does not follow: b"]);
    assert!(screen.error.is_none());
}

#[test]
fn a_line_that_is_no_event_goes_to_the_output() {
    let mut screen = screen_of(&[]);
    screen.add_event_line("a message", Duration::ZERO);
    assert_eq!(lines_of(&screen, Pane::Output), ["a message"]);
}

#[test]
fn control_characters_of_names_and_errors_do_not_reach_the_terminal() {
    let event =
        json!({ "event": "refused", "objects": ["a\x1b[2J"], "error": "bad\x1b[2J\x07 name", "text": "a\x1b[2J" });
    let screen = screen_of(&[event]);
    assert!(drawn(&screen, AREA).chars().all(|character| character == '\n' || !character.is_control()));
    assert_eq!(lines_of(&screen, Pane::Error), ["bad name"]);
    assert_eq!(lines_of(&screen, Pane::Events), ["0:00 a\\u{1b}[2J"]);
}

#[test]
fn events_are_bounded() {
    let screen = screen_of(&vec![watching(); MAX_EVENTS + 10]);
    assert_eq!(lines_of(&screen, Pane::Events).len(), MAX_EVENTS);
}

#[test]
fn output_is_bounded_in_lines_and_in_bytes_of_a_line() {
    let mut output = OutputLines::default();
    (0..MAX_LINES + 5).for_each(|line| output.add(format!("{line}\n").as_bytes()));
    assert_eq!((output.lines().count(), output.lines().next()), (MAX_LINES, Some("5".to_string())));
    let long = OutputLines::of(&"x".repeat(3 * MAX_LINE_BYTES));
    assert!(long.lines().all(|line| line.len() <= MAX_LINE_BYTES));
    assert_eq!(long.lines().map(|line| line.len()).sum::<usize>(), 3 * MAX_LINE_BYTES);
}

#[test]
fn output_has_the_text_of_a_terminal_without_control_sequences() {
    let shown = |text: &str| OutputLines::of(text).lines().collect::<Vec<_>>();
    assert_eq!(shown("one\r\ntwo"), ["one", "two"]);
    assert_eq!(shown("10%\r20%\r30%\ndone\n"), ["30%", "done"]);
    assert_eq!(shown("\x1b[1;31mred\x1b[0m\x1b]0;title\x07 \x1b(Bplain\x1b]2;t\x1b\\!"), ["red plain!"]);
    assert_eq!(shown("a\tb\x08c\x07"), ["a       c"]);
    let mut split = OutputLines::default();
    "\x1b[2Jé\n".bytes().for_each(|byte| split.add(&[byte]));
    assert_eq!(split.lines().collect::<Vec<_>>(), ["é"]);
}

#[test]
fn long_lines_are_split_behind_a_space_and_words_that_are_too_long_inside() {
    let mut screen = screen_of(&[]);
    screen.add_output("one two three\nabcdefghijk\n日本語日本語\n".as_bytes());
    let expected = ["one two ", "three", "abcdefgh", "ijk", "日本語日", "本語"];
    assert_eq!(screen.lines(Pane::Output, 8), expected);
    assert_eq!(screen.lines(Pane::Output, 1).concat(), "one two threeabcdefghijk日本語日本語");
}

#[test]
fn keys_have_their_meanings() {
    let plain = |code| key_of(&KeyEvent::new(code, KeyModifiers::NONE));
    assert_eq!(plain(KeyCode::Char('q')), Some(Key::Interrupt));
    assert_eq!(key_of(&KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Key::Interrupt));
    assert_eq!(plain(KeyCode::Char('c')), None);
    assert_eq!((plain(KeyCode::Tab), plain(KeyCode::BackTab)), (Some(Key::NextPane), Some(Key::PreviousPane)));
    assert_eq!((plain(KeyCode::PageUp), plain(KeyCode::Down)), (Some(Key::PageUp), Some(Key::Down)));
}

#[test]
fn tab_goes_through_all_panes_and_back() {
    let mut screen = screen_of(&[]);
    for pane in [Pane::Replaced, Pane::Events, Pane::Error, Pane::Output, Pane::Objects] {
        screen.press(Key::NextPane, AREA);
        assert_eq!(screen.chosen, pane);
    }
    screen.press(Key::PreviousPane, AREA);
    assert_eq!(screen.chosen, Pane::Output);
}

#[test]
fn an_error_is_scrolled_to_its_end_and_not_further() {
    let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
    let mut screen = screen_of(&[build_failed(&text)]);
    screen.chosen = Pane::Error;
    let top = |screen: &Screen| {
        let (width, height) = screen.layout(AREA).inner(Pane::Error);
        screen.first_line(Pane::Error, screen.lines(Pane::Error, width).len() - height)
    };
    let (_, height) = screen.layout(AREA).inner(Pane::Error);
    let mut press = |key| {
        screen.press(key, AREA);
        top(&screen)
    };
    assert_eq!(press(Key::Up), 0);
    assert_eq!(press(Key::Down), 1);
    assert_eq!(press(Key::PageDown), 1 + height);
    assert_eq!((press(Key::End), press(Key::Down)), (100 - height, 100 - height));
    assert_eq!((press(Key::PageUp), press(Key::Home)), (100 - 2 * height, 0));
    screen.press(Key::End, AREA);
    screen.add_event_line(&build_failed(&text).to_string(), Duration::ZERO);
    assert_eq!(top(&screen), 0, "a new error is shown from its beginning");
}

#[test]
fn output_shows_its_end_until_it_is_scrolled() {
    let mut screen = screen_of(&[]);
    screen.chosen = Pane::Output;
    screen.add_output((0..100).map(|line| format!("line {line}\n")).collect::<String>().as_bytes());
    assert!(drawn(&screen, AREA).contains("line 99"));
    screen.press(Key::Home, AREA);
    let top = drawn(&screen, AREA);
    assert!(top.contains("line 0 ") && !top.contains("line 99"), "{top}");
    screen.press(Key::End, AREA);
    screen.add_output(b"more\n");
    assert!(drawn(&screen, AREA).contains("more"));
}

#[test]
fn the_screen_of_the_documentation_is_what_is_drawn() {
    let mut screen = screen_of(&[memory(), watching(), reloaded(), build_failed(BROKEN)]);
    screen.add_output(b"1041\n1042\n2043\n");
    screen.chosen = Pane::Error;
    let drawn = drawn(&screen, DOCUMENTED);
    let documented = include_str!("../../../../docs/watch.md");
    assert!(documented.contains(&drawn), "docs/watch.md lacks this screen:\n{drawn}");
}

#[test]
fn a_long_name_of_an_object_is_shown_with_its_end() {
    let mut event = memory();
    event["objects"][0]["object"] = "/a/folder/with/a/long/name/of/many/letters/main.o".into();
    let narrow = drawn(&screen_of(&[event]), Rect { width: 80, ..AREA });
    assert!(narrow.lines().any(|line| line.starts_with("┃…ters/main.o ")), "{narrow}");
}

#[test]
fn the_panes_cover_the_screen_at_every_size() {
    let heights = (0..12).chain([24, 60]);
    for (width, height) in heights.flat_map(|height| [(0, height), (1, height), (40, height), (120, height)]) {
        let area = Rect { x: 0, y: 0, width, height };
        for (pane, is_enlarged) in Pane::ALL.into_iter().flat_map(|pane| [(pane, false), (pane, true)]) {
            let layout = Layout::new(area, pane, is_enlarged);
            let panes = Pane::ALL.map(|pane| layout.area(pane)).into_iter().chain([layout.memory, layout.keys]);
            assert_eq!(panes.map(|pane| pane.area()).sum::<u32>(), area.area(), "{area} {pane:?} {is_enlarged}");
            let mut screen = screen_of(&[memory(), watching(), reloaded(), refused("no")]);
            (screen.chosen, screen.is_enlarged) = (pane, is_enlarged);
            if width > 0 && height > 0 {
                drawn(&screen, area);
            }
        }
    }
}
