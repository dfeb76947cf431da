#[unsafe(no_mangle)]
pub extern "C" fn sum_of_words(text: *const std::ffi::c_char) -> u64 {
    let text = unsafe { std::ffi::CStr::from_ptr(text) }.to_str().unwrap();
    let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    let caught = std::panic::catch_unwind(|| numbers[numbers.len()]);
    println!("{numbers:?} {}", caught.is_err());
    std::thread::spawn(move || numbers.iter().sum()).join().unwrap()
}
