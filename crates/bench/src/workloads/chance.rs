//! Random numbers with the distributions of lifetimes, sizes and keys. `fastrand` has only uniform ones. `rand_distr`
//! has these distributions, but needs the generators of `rand`; here each is one formula.

use fastrand::Rng;

/// A number above 0, at most 1.
fn share(rng: &mut Rng) -> f64 {
    1.0 - rng.f64()
}

/// Given by its median and the standard deviation of its logarithm.
pub fn log_normal(rng: &mut Rng, median: f64, deviation: f64) -> f64 {
    let (radius, angle) = ((-2.0 * share(rng).ln()).sqrt(), std::f64::consts::TAU * share(rng));
    median * (deviation * radius * angle.cos()).exp()
}

pub fn pareto(rng: &mut Rng, min: f64, exponent: f64) -> f64 {
    min * share(rng).powf(-1.0 / exponent)
}

/// The time until the next of several independent events.
pub fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * share(rng).ln()
}

/// Uniform on a logarithmic axis between the minimum and the maximum.
pub fn log_uniform(rng: &mut Rng, min: f64, max: f64) -> f64 {
    min * (max / min).powf(share(rng))
}

/// An index, chosen by weights.
pub fn weighted(rng: &mut Rng, weights: &[u32]) -> usize {
    let mut remaining = rng.u32(..weights.iter().sum::<u32>());
    let is_chosen = |&weight: &u32| {
        let is_chosen = remaining < weight;
        remaining = remaining.saturating_sub(weight);
        is_chosen
    };
    weights.iter().position(is_chosen).unwrap_or(0)
}

/// Keys from 0 on; the n-th key has a frequency proportional to `1 / n^exponent`.
pub struct Zipf(Vec<f64>);

impl Zipf {
    pub fn new(keys: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let add = |key: usize| {
            sum += ((key + 1) as f64).powf(-exponent);
            sum
        };
        Zipf((0..keys).map(add).collect())
    }

    pub fn key(&self, rng: &mut Rng) -> usize {
        let point = share(rng) * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|&sum| sum < point).min(self.0.len().saturating_sub(1))
    }
}
