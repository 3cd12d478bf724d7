//! Decimal numbers in header values, without an allocation.

/// Room for a number's digits.
#[derive(Debug)]
pub(crate) struct Decimal {
    digits: [u8; 20],
}

impl Decimal {
    pub(crate) const fn new() -> Self {
        Self { digits: [b'0'; 20] }
    }

    /// The digits of a number.
    pub(crate) fn write(&mut self, mut number: u64) -> &[u8] {
        let mut at = self.digits.len();
        loop {
            at -= 1;
            let digit = (number % 10) as u8;
            self.digits[at] = b'0' + digit;
            number /= 10;
            if number == 0 {
                return &self.digits[at..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_what_display_writes() {
        for number in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX] {
            assert_eq!(Decimal::new().write(number), number.to_string().as_bytes());
        }
    }
}
