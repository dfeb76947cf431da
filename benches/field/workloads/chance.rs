//! Numbers of the distributions that lifetimes, sizes and keys have.

use crate::dice::Dice;

/// From 0 to 1, neither included.
pub fn share(dice: &mut Dice) -> f64 {
    (dice.roll(1 << 52) as f64 + 0.5) / (1u64 << 52) as f64
}

/// By its median, and the standard deviation of its logarithm.
pub fn log_normal(dice: &mut Dice, median: f64, deviation: f64) -> f64 {
    let (radius, angle) = ((-2.0 * share(dice).ln()).sqrt(), std::f64::consts::TAU * share(dice));
    median * (deviation * radius * angle.cos()).exp()
}

pub fn pareto(dice: &mut Dice, least: f64, exponent: f64) -> f64 {
    least * share(dice).powf(-1.0 / exponent)
}

/// The time to the next of independent events.
pub fn exponential(dice: &mut Dice, mean: f64) -> f64 {
    -mean * share(dice).ln()
}

/// As many even steps from the least to the most, on a logarithmic axis.
pub fn log_uniform(dice: &mut Dice, least: f64, most: f64) -> f64 {
    least * (most / least).powf(share(dice))
}

/// A position, by weights.
pub fn weighted(dice: &mut Dice, weights: &[u32]) -> usize {
    let mut left = dice.roll(weights.iter().sum::<u32>() as usize) as u32;
    let is_it = |&weight: &u32| {
        let is_it = left < weight;
        left = left.saturating_sub(weight);
        is_it
    };
    weights.iter().position(is_it).unwrap_or(0)
}

/// Keys from 0 on, the n-th with a frequency of `1 / n^exponent`.
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

    pub fn key(&self, dice: &mut Dice) -> usize {
        let point = share(dice) * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|&sum| sum < point).min(self.0.len().saturating_sub(1))
    }
}
