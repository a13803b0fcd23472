//! How full a limit of memory is, and the messages that were given about it.
//!
//! The server's log reports a limit that is nearly reached, once for each of [`LEVELS`]. It reports
//! a level again after use has fallen below it and risen again, or after [`AGAIN`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Percentages of a limit, from the highest on.
const LEVELS: [u8; 3] = [95, 90, 80];
/// A level counts as left when use is this number of percentage points below it. Use always goes up
/// and down a little.
const MARGIN: u8 = 5;
/// Seconds within which the message of a level is not repeated, however often use crosses it.
const PAUSE: u64 = 600;
/// Seconds after which the message is repeated if a limit stays nearly reached: a day.
const AGAIN: u64 = 86_400;

/// Returns the highest of the levels that `used` has reached.
pub fn level(used: u64, limit: u64) -> Option<u8> {
    LEVELS.into_iter().find(|&level| has_reached(used, limit, level))
}

fn has_reached(used: u64, limit: u64, percent: u8) -> bool {
    used > 0 && u128::from(used) * 100 >= u128::from(limit) * u128::from(percent)
}

/// The messages given about one limit. In shared memory, written only by the keeper. Zeroed: none.
#[repr(transparent)]
#[derive(Default)]
pub struct Alarm(AtomicU64);

/// The same as fields: 0 is no level.
#[derive(Clone, Copy, Default)]
struct Said {
    /// The level that use has not left since it was said.
    standing: u8,
    /// The level that was said last.
    last: u8,
    /// When that was, in seconds since 1970.
    at: u64,
}

impl Said {
    fn unpack(word: u64) -> Said {
        Said { standing: word as u8, last: (word >> 8) as u8, at: word >> 16 }
    }

    fn pack(self) -> u64 {
        u64::from(self.standing) | u64::from(self.last) << 8 | self.at << 16
    }
}

impl Alarm {
    /// Returns a level that is to be said now, and notes that it was said.
    pub fn look(&self, used: u64, limit: u64, now: u64) -> Option<u8> {
        let said = Said::unpack(self.0.load(Relaxed));
        let standing = LEVELS
            .into_iter()
            .filter(|&level| level <= said.standing)
            .find(|&level| has_reached(used, limit, level - MARGIN))
            .unwrap_or(0);
        let since = now.saturating_sub(said.at);
        let due = level(used, limit).filter(|&level| {
            (level > standing && (level > said.last || since >= PAUSE)) || since >= AGAIN
        });
        let said = match due {
            Some(level) => Said { standing: level, last: level, at: now },
            None => Said { standing, ..said },
        };
        self.0.store(said.pack(), Relaxed);
        due
    }

    /// The limit is another one's from now on.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages about a limit of 100 bytes, for uses in (seconds, bytes used).
    fn said(uses: &[(u64, u64)]) -> Vec<(u64, u8)> {
        let alarm = Alarm::default();
        let said = |&(at, used)| Some((at, alarm.look(used, 100, at)?));
        uses.iter().filter_map(said).collect()
    }

    const START: u64 = 1_800_000_000;

    #[test]
    fn levels() {
        let all = [0, 79, 80, 89, 90, 94, 95, 100, 200].map(|used| level(used, 100));
        let expected = [0, 0, 80, 80, 90, 90, 95, 95, 95];
        assert_eq!(all.map(Option::unwrap_or_default), expected);
        assert_eq!((level(0, 0), level(1, 0)), (None, Some(95)));
        assert_eq!(level(u64::MAX, u64::MAX), Some(95));
    }

    #[test]
    fn each_level_once_on_the_way_up() {
        let uses: Vec<_> = (0..=100).map(|i| (START + i, i)).collect();
        assert_eq!(said(&uses), [(START + 80, 80), (START + 90, 90), (START + 95, 95)]);
        assert_eq!(said(&[(START, 97), (START + 1, 97), (START + 2, 92)]), [(START, 95)]);
    }

    #[test]
    fn again_after_it_fell_and_rose() {
        let (fell, rose) = (START + 5000, START + 9000);
        // A little below the level it is not left.
        assert_eq!(said(&[(START, 81), (fell, 76), (rose, 81)]), [(START, 80)]);
        assert_eq!(said(&[(START, 81), (fell, 74), (rose, 81)]), [(START, 80), (rose, 80)]);
        // From 95 down to 82: that was said on the way up, and 90 is new then.
        let down = [(START, 96), (fell, 82), (rose, 91)];
        assert_eq!(said(&down), [(START, 95), (rose, 90)]);
    }

    #[test]
    fn not_again_at_once() {
        let mut uses = vec![(START, 81)];
        uses.extend((1..100).flat_map(|i| [(START + i * 2, 10), (START + i * 2 + 1, 81)]));
        assert_eq!(said(&uses), [(START, 80)]);
        // A higher one does not wait, and a lower one waits.
        uses.push((START + 300, 92));
        uses.extend([(START + 301, 10), (START + 302, 81), (START + 899, 81), (START + 900, 81)]);
        assert_eq!(said(&uses), [(START, 80), (START + 300, 90), (START + 900, 80)]);
    }

    #[test]
    fn again_after_a_day() {
        let day = START + 86_400;
        assert_eq!(said(&[(START, 85), (day - 1, 85), (day, 85)]), [(START, 80), (day, 80)]);
        // Also a clock that was set back ends in a message.
        assert_eq!(said(&[(day, 85), (START, 10), (START, 92)]), [(day, 80), (START, 90)]);
    }

    #[test]
    fn another_one_begins_anew() {
        let alarm = Alarm::default();
        assert_eq!(alarm.look(85, 100, START), Some(80));
        alarm.reset();
        assert_eq!(alarm.look(85, 100, START + 1), Some(80));
    }
}
