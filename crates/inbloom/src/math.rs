//! Logarithms, powers and roots, the same to the last bit on every machine.
//!
//! Plans are computed from these, and a plan made on one machine must be the plan made on another:
//! files of two machines are merged only if their plans agree. The functions of f64 in std are those
//! of the system's library, and two systems may differ in the last bit of a logarithm. They are also
//! missing without std. So plans, models and estimates take these instead.

pub(crate) use libm::{
    ceil, exp, expm1 as exp_m1, floor, hypot, log as ln, log1p as ln_1p, log2, pow as powf, round,
    sqrt,
};

/// Returns the part behind the point.
pub(crate) fn fract(x: f64) -> f64 {
    x - libm::trunc(x)
}

/// Returns a power by repeated squaring, which takes the same products in the same order
/// everywhere.
pub(crate) fn powi(base: f64, exponent: i32) -> f64 {
    let (mut square, mut left) = (base, exponent.unsigned_abs());
    let mut power = 1.0;
    while left != 0 {
        if left % 2 == 1 {
            power *= square;
        }
        square *= square;
        left /= 2;
    }
    if exponent < 0 { 1.0 / power } else { power }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To the bit: what a change of the library behind these, or another machine, would change.
    #[test]
    fn results_are_the_same_on_every_machine() {
        let mut sum = 0_u64;
        let mut add = |value: f64| sum = sum.rotate_left(7) ^ value.to_bits();
        for step in 1..2000 {
            let x = f64::from(step) / 1999.0;
            for value in [
                ln(x),
                ln_1p(-x / 2.0),
                exp(-9.0 * x),
                exp_m1(-x),
                log2(1e6 * x),
                powf(x, 1.0 / 7.0),
                sqrt(x),
                hypot(x, 1.5),
                powi(x, 13),
                powi(x, -4),
            ] {
                add(value);
            }
        }
        assert_eq!(sum, 0x5b5a_715c_ef5c_3280, "{sum:#018x}");
    }

    #[test]
    fn whole_powers_are_those_of_repeated_products() {
        assert_eq!([0, 1, 2, 3, 10].map(|n| powi(3.0, n)), [1.0, 3.0, 9.0, 27.0, 59049.0]);
        assert_eq!([-1, -64].map(|n| powi(2.0, n)), [0.5, 1.0 / (65536.0 * 65536.0_f64).powi(2)]);
        assert_eq!((powi(0.0, 0), powi(1e200, 2), powi(2.0, i32::MIN)), (1.0, f64::INFINITY, 0.0));
        assert_eq!((fract(2.25), fract(3.0)), (0.25, 0.0));
    }
}
