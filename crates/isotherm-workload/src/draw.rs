//! Numbers with a distribution, drawn from evenly distributed ones.

/// A number with the standard normal distribution, from two of 0 up to but not including 1 (Box and Muller, 1958).
pub(crate) fn normal(u: f64, v: f64) -> f64 {
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

#[cfg(test)]
mod tests {
    use super::normal;
    use isotherm_heat::Rng;

    #[test]
    fn two_thirds_are_within_one_deviation() {
        let mut rng = Rng::new(1);
        let drawn: Vec<f64> = (0..100_000).map(|_| normal(rng.unit(), rng.unit())).collect();
        let within = drawn.iter().filter(|n| n.abs() < 1.0).count();
        let below = drawn.iter().filter(|n| **n < 0.0).count();
        // Expected are 68,269 and 50,000, with deviations of 147 and 158.
        assert!((67_500..69_000).contains(&within) && (49_200..50_800).contains(&below), "{within} {below}");
    }
}
