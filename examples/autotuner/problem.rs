//! The inputs of the kernels and their exact answers.
//!
//! All numbers are small positive integers in `f64`. Sums are therefore exact in any order, and answers compare bit
//! by bit. Each kernel has two inputs, and callers alternate between them. A call that writes nothing then leaves the
//! other input's answer, which is wrong.

/// `kernel(first, second, output, side)`, over squares of `side` by `side` cells.
pub type KernelFn = unsafe extern "C" fn(*const f64, *const f64, *mut f64, i64);

/// The functions that are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    Gemm,
    Stencil,
}

impl Kernel {
    pub const ALL: [Kernel; 2] = [Kernel::Gemm, Kernel::Stencil];

    pub fn name(self) -> &'static str {
        match self {
            Kernel::Gemm => "gemm",
            Kernel::Stencil => "stencil",
        }
    }

    /// The variable in which all versions count their calls.
    pub fn counter(self) -> &'static str {
        match self {
            Kernel::Gemm => "gemm_calls",
            Kernel::Stencil => "stencil_calls",
        }
    }

    pub fn index(self) -> usize {
        self as usize
    }

    /// Cells along one side. The inner cells of the stencil are 64 by 64.
    pub fn side(self) -> usize {
        match self {
            Kernel::Gemm => 32,
            Kernel::Stencil => 66,
        }
    }

    /// Floating-point operations of one call.
    pub fn operations(self) -> f64 {
        let side = self.side() as f64;
        match self {
            Kernel::Gemm => 2.0 * side * side * side,
            Kernel::Stencil => 9.0 * (side - 2.0) * (side - 2.0),
        }
    }
}

/// One kernel's inputs, with their answers.
pub struct Problem {
    kernel: Kernel,
    inputs: [Input; 2],
}

struct Input {
    first: Vec<f64>,
    second: Vec<f64>,
    /// The bits of the `f64` values.
    answer: Vec<u64>,
}

/// A kernel's output buffer, as bits: integers compare faster than floating-point numbers.
pub struct Output(Vec<u64>);

impl Problem {
    pub fn all() -> [Problem; 2] {
        Kernel::ALL.map(|kernel| Problem { kernel, inputs: [1, 2].map(|seed| Input::new(kernel, seed)) })
    }

    pub fn output(&self) -> Output {
        Output(vec![0; self.kernel.side() * self.kernel.side()])
    }

    /// Calls a kernel.
    ///
    /// # Safety
    /// `function` is this problem's kernel, and its code stays mapped until it returns.
    pub unsafe fn call(&self, function: KernelFn, iteration: usize, output: &mut Output) {
        let input = &self.inputs[iteration % 2];
        let side = self.kernel.side() as i64;
        // SAFETY: the caller promises it. All three buffers have the size that the kernel expects for `side`.
        unsafe { function(input.first.as_ptr(), input.second.as_ptr(), output.0.as_mut_ptr().cast(), side) }
    }

    pub fn is_right(&self, iteration: usize, output: &Output) -> bool {
        output.0 == self.inputs[iteration % 2].answer
    }
}

impl Input {
    fn new(kernel: Kernel, seed: u64) -> Input {
        let side = kernel.side();
        let number = |cell: usize, salt: u64| ((cell as u64 * 7 + salt * 31 + seed * 13) % 11 + seed) as f64;
        let square = |salt: u64| (0..side * side).map(|cell| number(cell, salt)).collect::<Vec<f64>>();
        let (first, second) = (square(1), square(2));
        let answer = match kernel {
            Kernel::Gemm => product(&first, &second, side),
            Kernel::Stencil => weighted(&first, &second, side),
        };
        Input { first, second, answer: answer.into_iter().map(f64::to_bits).collect() }
    }
}

fn product(a: &[f64], b: &[f64], side: usize) -> Vec<f64> {
    let cell = |row: usize, column: usize| (0..side).map(|k| a[row * side + k] * b[k * side + column]).sum();
    (0..side * side).map(|at| cell(at / side, at % side)).collect()
}

fn weighted(grid: &[f64], weights: &[f64], side: usize) -> Vec<f64> {
    let inner = 1..side - 1;
    let cell = |at: usize| {
        if !inner.contains(&(at / side)) || !inner.contains(&(at % side)) {
            return grid[at];
        }
        let around = [at, at - side, at + side, at - 1, at + 1];
        around.iter().zip(weights).map(|(&at, weight)| weight * grid[at]).sum()
    };
    (0..side * side).map(cell).collect()
}
