//! A static library with its own copy of the standard library: threads, panics, collections, formatting, files, processes, time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::fmt::{self, Display, Write as _};
use std::io::{BufRead, Read, Seek, Write};
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::atomic::{AtomicI8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, net, process, thread};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static NAMES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static WITNESS: Witness = const { Witness };
}
static DROPPED: AtomicUsize = AtomicUsize::new(0);
static TABLE: LazyLock<HashMap<u64, u64>> = LazyLock::new(|| (0..1000).map(|n| (n, n * n)).collect());
static ONCE: OnceLock<String> = OnceLock::new();

struct Witness;

impl Drop for Witness {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn rust_main() -> i32 {
    panic::set_hook(Box::new(|_| ()));
    collections();
    formatting();
    threads();
    panics();
    atomics();
    system();
    numbers();
    println!("dropped in threads: {}", DROPPED.load(Ordering::SeqCst));
    std::io::stdout().flush().unwrap();
    6
}

fn collections() {
    let mut counts: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, word) in "the cat and the dog and the bird".split(' ').enumerate() {
        counts.entry(word.to_owned()).or_default().push(at);
    }
    let sorted: BTreeMap<_, _> = counts.iter().collect();
    println!("{sorted:?}");
    let mut big: HashMap<u64, u64> = (0..50_000).map(|n| (n * 7919 % 65_537, n)).collect();
    big.retain(|key, _| key % 3 == 0);
    println!("{} {} {:?}", big.len(), big.values().sum::<u64>(), TABLE.get(&31));
    let set: HashSet<_> = big.keys().map(|key| key % 100).collect();
    let ordered: BTreeSet<_> = set.into_iter().collect();
    println!("{:?} {:?}", ordered.first(), ordered.range(40..45).collect::<Vec<_>>());
    let mut heap: BinaryHeap<_> = (0..500).map(|n| n * 37 % 499).collect();
    let mut queue: VecDeque<_> = std::iter::from_fn(|| heap.pop()).take(7).collect();
    queue.rotate_left(3);
    println!("{queue:?}");
    let mut list: Vec<u32> = (0..20_000u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    list.sort_unstable();
    list.dedup_by_key(|n| *n / 1000);
    println!("{} {:?} {:?}", list.len(), list.binary_search(&list[77]), list.chunks(7000).map(<[u32]>::len).collect::<Vec<_>>());
    let shared = Rc::new(RefCell::new(vec![1]));
    let weak = Rc::downgrade(&shared);
    shared.borrow_mut().extend([2, 3]);
    println!("{:?} {} {}", weak.upgrade(), Rc::strong_count(&shared), shared.try_borrow_mut().is_ok());
}

struct Matrix([[f64; 2]; 2]);

impl Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|row| writeln!(f, "[{:>8.3} {:<8.3e}]", row[0], row[1]))
    }
}

fn formatting() {
    let mut text = String::new();
    write!(text, "{:#?} {:08.3} {:+} {:#x} {:#010b} {:^9}|", (1, "a"), 3.14159, 5, 255, 5, "mid").unwrap();
    println!("{text} {}", Matrix([[1.0, 2e10], [-0.5, f64::NAN]]));
    println!("{:?} {:?}", "häß€😀\n\u{7f}".chars().rev().collect::<String>(), "ß".to_uppercase());
    println!("{:?} {:?} {:?}", "x".parse::<i32>(), "1e400".parse::<f64>(), "".parse::<bool>());
    println!("{} {} {:?} {:e}", 0.1 + 0.2, f32::MAX, 1e21, 1234.5);
}

fn threads() {
    let (send, receive) = mpsc::channel();
    let total = Arc::new(Mutex::new(0u64));
    let handles: Vec<_> = (1..9u64)
        .map(|step| {
            let (send, total) = (send.clone(), Arc::clone(&total));
            thread::Builder::new()
                .name(format!("worker {step}"))
                .spawn(move || {
                    WITNESS.with(|_| ());
                    for n in 0..500 {
                        *total.lock().unwrap() += n * step;
                        DEPTH.set(DEPTH.get() + 1);
                    }
                    NAMES.with_borrow_mut(|names| names.push(thread::current().name().unwrap().to_owned()));
                    send.send((step, DEPTH.get(), NAMES.with_borrow(|names| names.join(",")))).unwrap();
                })
                .unwrap()
        })
        .collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    drop(send);
    let results: BTreeMap<_, _> = receive.iter().map(|(step, depth, name)| (step, (depth, name))).collect();
    println!("{} {results:?} {}", total.lock().unwrap(), DEPTH.get());
    let (ready, barrier, once) = (Arc::new((Mutex::new(0), Condvar::new())), Barrier::new(4), Once::new());
    let table = RwLock::new(HashMap::new());
    let mut data = [1u64, 2, 3, 4];
    thread::scope(|scope| {
        for (n, value) in data.iter_mut().enumerate() {
            let (ready, barrier, once, table) = (&ready, &barrier, &once, &table);
            scope.spawn(move || {
                once.call_once(|| table.write().unwrap().insert("once", 1).map_or((), drop));
                let leader = barrier.wait().is_leader();
                *value *= 10 + u64::from(table.read().unwrap()["once"] == 1);
                ONCE.get_or_init(|| "initialised".into());
                *ready.0.lock().unwrap() += 1 + n + usize::from(leader) * 100;
                ready.1.notify_all();
            });
        }
        let reached = ready.1.wait_while(ready.0.lock().unwrap(), |sum| *sum < 110).unwrap();
        println!("{reached} {:?}", ONCE.get());
    });
    println!("{data:?} {:?}", thread::available_parallelism().is_ok());
}

fn panics() {
    let text = |cause: Box<dyn std::any::Any + Send>| match cause.downcast::<String>() {
        Ok(text) => *text,
        Err(cause) => cause.downcast_ref::<&str>().map_or("?".into(), |text| (*text).into()),
    };
    let empty: Vec<i32> = env::args().skip(900).map(|word| word.len() as i32).collect();
    println!("{}", text(panic::catch_unwind(|| empty[3]).unwrap_err()));
    println!("{}", text(panic::catch_unwind(|| i32::MAX / empty.len() as i32).unwrap_err()));
    println!("{}", text(panic::catch_unwind(|| None::<u8>.expect("a value")).unwrap_err()));
    println!("{}", text(panic::catch_unwind(|| Err::<u8, _>(fmt::Error).unwrap()).unwrap_err()));
    println!("{}", text(thread::spawn(|| panic!("in thread {}", 1)).join().unwrap_err()));
    struct Guard<'a>(&'a Cell<u32>);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() * 10 + u32::from(thread::panicking()));
        }
    }
    let order = Cell::new(5);
    let deep = panic::catch_unwind(AssertUnwindSafe(|| {
        fn descend(n: u32, order: &Cell<u32>) -> u32 {
            let _guard = (n % 25 == 0).then(|| Guard(order));
            if n == 0 { panic!("bottom") } else { descend(n - 1, order) + 1 }
        }
        descend(100, &order)
    }));
    println!("{} {}", text(deep.unwrap_err()), order.get());
    let lock = Arc::new(Mutex::new(1));
    let poisoner = Arc::clone(&lock);
    let joined = thread::spawn(move || {
        let _held = poisoner.lock().unwrap();
        panic::resume_unwind(Box::new(17u8))
    })
    .join();
    println!("{:?} {}", joined.unwrap_err().downcast_ref::<u8>(), lock.is_poisoned());
    for n in 0..2000 {
        assert!(panic::catch_unwind(|| assert_ne!(n, n)).is_err());
    }
    let trace = std::backtrace::Backtrace::force_capture().to_string();
    println!("{}", trace.lines().count() > 4);
}

fn atomics() {
    let (a, b, c, d) = (AtomicI8::new(-3), AtomicU16::new(9), AtomicU32::new(7), AtomicU64::new(1 << 40));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..1000 {
                    a.fetch_add(1, Ordering::Relaxed);
                    b.fetch_xor(n, Ordering::AcqRel);
                    let _ = c.fetch_update(Ordering::SeqCst, Ordering::Acquire, |old| Some(old.wrapping_mul(5)));
                    d.fetch_max(u64::from(n) << 50, Ordering::Release);
                }
            });
        }
    });
    println!("{} {} {} {}", a.into_inner(), b.into_inner(), c.into_inner(), d.into_inner());
}

fn system() {
    let path = env::temp_dir().join(format!("rust_program.{}", process::id()));
    let mut file = fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    (0..100).for_each(|n| writeln!(file, "line {n}").unwrap());
    file.rewind().unwrap();
    let lines: Vec<_> = std::io::BufReader::new(&file).lines().map(Result::unwrap).skip(97).collect();
    println!("{lines:?} {}", fs::metadata(&path).unwrap().len());
    fs::remove_file(&path).unwrap();
    println!("{} {:?}", fs::read_to_string("/nonexistent").unwrap_err(), fs::read_dir("/nonexistent").map(drop).unwrap_err().kind());
    let child = process::Command::new("sh").args(["-c", "read x; echo got $x; exit 5"]).stdin(process::Stdio::piped())
        .stdout(process::Stdio::piped()).spawn();
    let mut child = child.unwrap();
    child.stdin.take().unwrap().write_all(b"input\n").unwrap();
    let output = child.wait_with_output().unwrap();
    println!("{:?} {:?}", String::from_utf8_lossy(&output.stdout), output.status.code());
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        text
    });
    net::TcpStream::connect(address).unwrap().write_all(b"over a socket").unwrap();
    println!("{}", server.join().unwrap());
    let start = Instant::now();
    thread::sleep(Duration::from_millis(5));
    println!("{} {:?}", start.elapsed() >= Duration::from_millis(5), Duration::from_secs_f64(1.5).checked_mul(3));
    println!("{:?} {:?}", env::var("NOT_SET_ANYWHERE"), env::var_os("PATH").is_some());
}

fn numbers() {
    let wide = (1..=30u128).product::<u128>();
    println!("{wide} {} {} {}", wide % 1_000_000_007, (wide / 3) as f64, i128::MIN / 7);
    println!("{:?} {:?} {} {}", 200u8.checked_add(100), i64::MIN.overflowing_neg(), u32::MAX.count_ones(), (-1i32).rotate_left(3));
    let waves: f64 = (0..1000).map(|n| f64::from(n).sin() * f64::from(n).sqrt().ln_1p().tanh()).sum();
    println!("{waves:.9} {:.6} {} {}", 2f64.powf(0.5).cbrt(), f64::MAX.mul_add(2.0, 1.0), (0.1f32 + 0.2f32).to_bits());
    println!("{} {}", (3.99f64 as u8) as char as u32, (f64::NAN as i32) + (1e20 as i64 == i64::MAX) as i32);
}
