//! Dates, timestamps and intervals: orders and conversions. No PostgreSQL symbol is used here.

/// Microseconds per day.
pub const DAY: i64 = 86_400_000_000;

/// A PostgreSQL `interval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Microseconds.
    pub time: i64,
    /// Days.
    pub day: i32,
    /// Months.
    pub month: i32,
}

impl Interval {
    /// Its length as `interval_cmp` counts it: months of 30 days, days of 24 hours.
    pub fn span(self) -> i128 {
        let days = 30 * i64::from(self.month) + i64::from(self.day);
        i128::from(self.time) + i128::from(days) * i128::from(DAY)
    }

    /// The interval of this length that has as many months, then days, as fit. It may have another
    /// length if none fits; then no interval of this length is canonical.
    pub fn canonical(span: i128) -> Interval {
        fn part(rest: &mut i128, unit: i128) -> i32 {
            let n = (*rest / unit).clamp(i32::MIN.into(), i32::MAX.into());
            *rest -= n * unit;
            n as i32
        }
        let mut rest = span;
        let month = part(&mut rest, 30 * i128::from(DAY));
        let day = part(&mut rest, DAY.into());
        Interval { time: rest as i64, day, month }
    }

    /// Its 16 bytes in a datum.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&self.time.to_ne_bytes());
        b[8..12].copy_from_slice(&self.day.to_ne_bytes());
        b[12..].copy_from_slice(&self.month.to_ne_bytes());
        b
    }

    /// From the 16 bytes in a datum.
    pub fn from_bytes(b: &[u8; 16]) -> Interval {
        Interval {
            time: i64::from_ne_bytes(std::array::from_fn(|i| b[i])),
            day: i32::from_ne_bytes(std::array::from_fn(|i| b[8 + i])),
            month: i32::from_ne_bytes(std::array::from_fn(|i| b[12 + i])),
        }
    }
}

/// `timetz_cmp`'s first criterion.
pub fn timetz_instant(time: i64, zone: i32) -> i64 {
    time.wrapping_add(i64::from(zone) * 1_000_000)
}

/// The last date that does not begin after a timestamp, and whether it begins at it.
pub fn timestamp_in_date(timestamp: i64) -> (i64, bool) {
    match timestamp {
        i64::MIN => (i32::MIN.into(), true),
        i64::MAX => (i32::MAX.into(), true),
        t => (t.div_euclid(DAY), t.rem_euclid(DAY) == 0),
    }
}

/// The last timestamp that is not after the beginning of a date, and whether it is the beginning.
/// Dates beyond all timestamps lie between the finite ones and infinity.
pub fn date_in_timestamp(date: i32) -> (i64, bool) {
    match date {
        i32::MIN => (i64::MIN, true),
        i32::MAX => (i64::MAX, true),
        d => match i64::from(d).checked_mul(DAY) {
            Some(t) => (t, true),
            None => (i64::MAX - 1, false),
        },
    }
}

/// The range that any session time zone may move a timestamp (or date) into; `unit` is the number
/// of column units per day. POSIX zones reach 167 hours. Infinities are the same everywhere.
pub fn around(v: i64, unit: i64, infinities: (i64, i64)) -> (i64, i64) {
    let (low, high) = infinities;
    if v == low || v == high {
        return (v, v);
    }
    let clamp = |v: i64| v.clamp(low + 1, high - 1);
    (clamp(v.saturating_sub(8 * unit)), clamp(v.saturating_add(8 * unit)))
}
