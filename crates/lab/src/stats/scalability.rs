//! The Universal Scalability Law: X(N) = λN / (1 + σ(N − 1) + κN(N − 1)).
//!
//! λ is what one worker does alone, σ the share that must queue, κ the price of keeping workers in step.

use serde::Serialize;

/// A fitted law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scalability {
    /// Throughput of one.
    pub lambda: f64,
    /// Contention.
    pub sigma: f64,
    /// Coherence.
    pub kappa: f64,
}

impl Scalability {
    /// Fits `(N, throughput)` points by least squares on N/X, in which the law is a parabola; negative
    /// coefficients are held at zero. `None` below three different N.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let points: Vec<(f64, f64)> =
            points.iter().copied().filter(|(n, x)| *n > 0.0 && *x > 0.0).collect();
        let mut different: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
        different.sort_unstable_by(f64::total_cmp);
        different.dedup();
        if different.len() < 3 {
            return None;
        }
        // N/X = a + b(N − 1) + cN(N − 1), weighted so that relative errors of X count alike.
        let all = [true, true, true];
        let [a, b, c] = solve(&points, all)?;
        let [a, b, c] = match (b < 0.0, c < 0.0) {
            (false, false) => [a, b, c],
            (true, false) => solve(&points, [true, false, true])?,
            (false, true) => solve(&points, [true, true, false])?,
            (true, true) => solve(&points, [true, false, false])?,
        };
        (a > 0.0).then(|| Self {
            lambda: 1.0 / a,
            sigma: (b / a).max(0.0),
            kappa: (c / a).max(0.0),
        })
    }

    /// The law's throughput at `n`.
    pub fn throughput(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// Where throughput peaks; infinite when it only levels off.
    pub fn peak(&self) -> f64 {
        if self.kappa > 0.0 {
            ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt()
        } else {
            f64::INFINITY
        }
    }
}

fn solve(points: &[(f64, f64)], used: [bool; 3]) -> Option<[f64; 3]> {
    let mut matrix = [[0.0; 4]; 3];
    for (n, x) in points {
        let row = [1.0, n - 1.0, n * (n - 1.0)];
        let weight = (x / n).powi(2);
        for i in 0..3 {
            for j in 0..3 {
                matrix[i][j] += weight * row[i] * row[j];
            }
            matrix[i][3] += weight * row[i] * n / x;
        }
    }
    for (at, row) in matrix.iter_mut().enumerate() {
        if !used[at] {
            *row = [0.0; 4];
            row[at] = 1.0;
        }
    }
    for pivot in 0..3 {
        let best = (pivot..3)
            .max_by(|a, b| matrix[*a][pivot].abs().total_cmp(&matrix[*b][pivot].abs()))?;
        matrix.swap(pivot, best);
        if matrix[pivot][pivot].abs() < 1e-12 {
            return None;
        }
        for row in 0..3 {
            if row != pivot {
                let factor = matrix[row][pivot] / matrix[pivot][pivot];
                let pivot_row = matrix[pivot];
                for (value, above) in matrix[row].iter_mut().zip(pivot_row) {
                    *value -= factor * above;
                }
            }
        }
    }
    Some([0, 1, 2].map(|at| matrix[at][3] / matrix[at][at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovers_a_law_and_holds_coefficients_at_zero() {
        let law = Scalability { lambda: 1000.0, sigma: 0.05, kappa: 0.001 };
        let points: Vec<(f64, f64)> =
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0].map(|n| (n, law.throughput(n))).to_vec();
        let fitted = Scalability::fit(&points).unwrap();
        assert!(
            (fitted.lambda / law.lambda - 1.0).abs() < 1e-6
                && (fitted.kappa / law.kappa - 1.0).abs() < 1e-6
        );
        assert!((fitted.peak() - (0.95f64 / 0.001).sqrt()).abs() < 0.1);
        let linear =
            Scalability::fit(&[(1.0, 10.0), (2.0, 20.5), (4.0, 41.0), (8.0, 83.0)]).unwrap();
        assert!(linear.sigma >= 0.0 && linear.kappa >= 0.0);
        assert_eq!(Scalability::fit(&[(1.0, 10.0), (2.0, 20.0), (2.0, 20.0)]), None);
    }
}
