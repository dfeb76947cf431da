//! Axes of the examples' drawings: positions and labels of ticks, and text escaped for SVG.

/// A step of 1, 2 or 5 times a power of ten that makes about `count` steps.
pub fn nice_step(span: f64, count: f64) -> f64 {
    let rough = span / count;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= rough);
    step.unwrap_or(10.0) * power
}

/// The positions of the ticks of an axis that begins at zero.
pub fn ticks(span: f64, step: f64) -> impl Iterator<Item = f64> {
    let last = (span / step + 1e-9).floor() as u32;
    (0..=last).map(move |index| f64::from(index) * step)
}

/// A tick's label, with the decimals that its step needs.
pub fn trimmed(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    format!("{value:.decimals$}")
}

/// Escapes text for SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
