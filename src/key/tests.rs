//! Order and round trip of the encodings, on native values (no server).

use super::bound::{Edge, Place, ascending};
use super::codec::*;
use super::datetime::*;
use super::{inet, numeric};
use proptest::prelude::*;
use std::cmp::Ordering;

fn seg(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out);
    out
}

fn inverted(segment: &[u8]) -> Vec<u8> {
    let mut s = segment.to_vec();
    invert(&mut s);
    s
}

/// Checks two segments of a codec. Their order is `order` (reversed after inversion). Their length
/// is found whatever follows. Their first bytes are in range.
fn check(codec: Codec, a: &[u8], b: &[u8], order: Ordering) {
    assert_eq!(a.cmp(b), order, "{a:x?} {b:x?}");
    assert_eq!(inverted(a).cmp(&inverted(b)), order.reverse());
    for s in [a, b] {
        for flip in [0, 0xFF] {
            let mut key = if flip == 0 { s.to_vec() } else { inverted(s) };
            assert!((NULL_FIRST + 1..NULL_ELEMENT).contains(&key[0]), "marker {:x}", key[0]);
            for tail in [0, 1, 2, 0x80, 0xFE, 0xFF] {
                key.truncate(s.len());
                assert_eq!(segment_len(codec, flip, &key), s.len());
                key.extend([tail; 9]);
                assert_eq!(segment_len(codec, flip, &key), s.len());
            }
        }
    }
}

fn ints() -> impl Strategy<Value = i64> {
    let near = |v: i64| (-2i64..=2).prop_map(move |d| v.wrapping_add(d));
    prop_oneof![
        any::<i64>(),
        any::<i32>().prop_map(i64::from),
        -300i64..300,
        (0u32..63).prop_flat_map(move |n| near(1 << n)),
        (0u32..63).prop_flat_map(move |n| near(-(1 << n))),
        near(i64::MAX),
        near(i32::MIN.into()),
    ]
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        any::<f32>().prop_map(f64::from),
        (-5i32..5).prop_map(f64::from),
        prop::sample::select(vec![
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            -f64::NAN,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            f64::MAX,
            f64::MIN,
            f32::MAX.into(),
            1e-50,
            -1e-50,
        ]),
    ]
}

/// PostgreSQL's order of floats.
fn float_order(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (x, y) => x.cmp(&y),
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![0u8..4, 0xFCu8..=0xFF, any::<u8>()];
    prop_oneof![
        prop::collection::vec(byte, 0..12),
        "[ -~]{0,20}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..300),
    ]
}

fn bit_string() -> impl Strategy<Value = Vec<bool>> {
    prop_oneof![
        prop::collection::vec(prop::bool::weighted(0.1), 0..30),
        prop::collection::vec(any::<bool>(), 0..100),
    ]
}

/// The server's image (`VarBit` without the length word).
fn bit_image(bits: &[bool]) -> Vec<u8> {
    let byte =
        |eight: &[bool]| eight.iter().zip(0..).fold(0, |b, (&bit, i)| b | u8::from(bit) << (7 - i));
    [&(bits.len() as i32).to_ne_bytes()[..], &bits.chunks(8).map(byte).collect::<Vec<_>>()].concat()
}

/// The server's image of an address and a mask, mostly of few values.
fn address() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0u8), Just(0x80), Just(1), any::<u8>()];
    (any::<bool>(), 0u8..=128, prop::collection::vec(byte, 16)).prop_map(|(six, bits, bytes)| {
        let (family, width) = if six { (3, 16) } else { (2, 4) };
        [&[family, bits.min(8 * width as u8)], &bytes[..width]].concat()
    })
}

/// `network_cmp`.
fn network_order(a: &[u8], b: &[u8]) -> Ordering {
    let bits = |image: &[u8], n: u8| -> Vec<bool> {
        (0..usize::from(n)).map(|i| image[2 + i / 8] << (i % 8) & 0x80 != 0).collect()
    };
    let common = a[1].min(b[1]);
    a[0].cmp(&b[0])
        .then_with(|| bits(a, common).cmp(&bits(b, common)))
        .then(a[1].cmp(&b[1]))
        .then_with(|| a[2..].cmp(&b[2..]))
}

/// A finite numeric: digits without zeros at the ends.
#[derive(Clone, Debug)]
struct Num {
    negative: bool,
    weight: i16,
    scale: u16,
    digits: Vec<u16>,
}

impl Num {
    /// The server's image (make_result and numeric.c's header macros).
    fn image(&self) -> Vec<u8> {
        let mut image = Vec::new();
        if self.scale <= 0x3F && (-64..=63).contains(&self.weight) {
            let header = 0x8000
                | if self.negative { 0x2000 } else { 0 }
                | self.scale << 7
                | if self.weight < 0 { 0x40 } else { 0 }
                | (self.weight as u16 & 0x3F);
            image.extend(header.to_ne_bytes());
        } else {
            image.extend((if self.negative { 0x4000 } else { 0 } | self.scale).to_ne_bytes());
            image.extend(self.weight.to_ne_bytes());
        }
        self.digits.iter().for_each(|d| image.extend(d.to_ne_bytes()));
        image
    }

    fn order(&self, other: &Num) -> Ordering {
        let sign = |n: &Num| match (n.digits.is_empty(), n.negative) {
            (true, _) => 0,
            (false, negative) => {
                if negative {
                    -1
                } else {
                    1
                }
            }
        };
        let magnitude = self.weight.cmp(&other.weight).then_with(|| self.digits.cmp(&other.digits));
        sign(self).cmp(&sign(other)).then(match sign(self) {
            0 => Ordering::Equal,
            1 => magnitude,
            _ => magnitude.reverse(),
        })
    }
}

fn nums() -> impl Strategy<Value = Num> {
    let weight = prop_oneof![4 => -3i16..4, 1 => -80i16..80, 1 => any::<i16>()];
    let digit =
        prop_oneof![0u16..3, 0u16..10000, (0u16..100).prop_map(|d| d * 100), 9998u16..10000];
    let digits = prop::collection::vec(digit, 0..6);
    let scale = prop_oneof![4 => 0u16..12, 1 => 0u16..0x3FFF];
    (any::<bool>(), weight, scale, digits).prop_map(|(negative, weight, scale, mut digits)| {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        while digits.first() == Some(&0) {
            digits.remove(0);
        }
        let zero = digits.is_empty();
        Num { negative: negative && !zero, weight: if zero { 0 } else { weight }, scale, digits }
    })
}

fn numeric_segment(image: &[u8]) -> (Vec<u8>, Option<u16>) {
    let mut out = Vec::new();
    let scale = numeric::put(&mut out, image);
    (out, scale)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers(a in ints(), b in ints()) {
        let (x, y) = (seg(|o| put_int(o, a)), seg(|o| put_int(o, b)));
        check(Codec::Int(Int::Int8), &x, &y, a.cmp(&b));
        prop_assert_eq!(get_int(&mut Reader::new(&x, 0)), a);
        prop_assert_eq!(get_int(&mut Reader::new(&inverted(&x), 0xFF)), a);
        prop_assert_eq!(&x, &seg(|o| put_wide(o, a.into())));
        let most = if a.unsigned_abs() < 1 << 56 { 8 } else { 9 };
        prop_assert!(x.len() <= most);
    }

    /// Of numbers that begin with the same byte.
    #[test]
    fn sums(least in ints(), more in prop::collection::vec(any::<u32>(), 0..70)) {
        let alike = |a: i64| seg(|o| put_int(o, a))[0];
        let numbers = more.iter().map(|&more| least.saturating_add(more.into()));
        let numbers: Vec<i64> = numbers.filter(|&a| alike(a) == alike(least)).collect();
        for flip in [0, 0xFF] {
            let eights = numbers.iter().map(|&a| {
                let segment = seg(|o| put_int(o, a));
                eight(&segment[1..]) ^ u64::from(flip).wrapping_mul(u64::MAX / 255)
            });
            let sum = numbers.iter().map(|&a| i128::from(a)).sum::<i128>();
            prop_assert_eq!(sum_of(alike(least) ^ flip, &eights.collect::<Vec<_>>(), flip), sum);
        }
    }

    #[test]
    fn wide_integers(a in any::<i128>(), b in any::<i128>(), shift in 0u32..128, c in ints()) {
        let (a, b) = (a >> shift, if shift % 2 == 0 { i128::from(c) } else { b >> shift });
        let (x, y) = (seg(|o| put_wide(o, a)), seg(|o| put_wide(o, b)));
        check(Codec::Interval, &x, &y, a.cmp(&b));
        prop_assert_eq!(get_wide(&mut Reader::new(&x, 0)), a);
        prop_assert_eq!(get_wide(&mut Reader::new(&inverted(&y), 0xFF)), b);
    }

    #[test]
    fn doubles(a in floats(), b in floats()) {
        let (x, y) = (seg(|o| put_float8(o, a)), seg(|o| put_float8(o, b)));
        check(Codec::Float8, &x, &y, float_order(a, b));
        let back = get_float8(&mut Reader::new(&inverted(&x), 0xFF));
        prop_assert_eq!(back.to_bits(), canonical_float8(a).to_bits());
        prop_assert_eq!(float_order(back, a), Ordering::Equal);
    }

    #[test]
    fn singles(a in floats(), b in floats()) {
        let (a, b) = (a as f32, b as f32);
        let (x, y) = (seg(|o| put_float4(o, a)), seg(|o| put_float4(o, b)));
        check(Codec::Float4, &x, &y, float_order(a.into(), b.into()));
        let back = get_float4(&mut Reader::new(&x, 0));
        prop_assert_eq!(back.to_bits(), canonical_float4(a).to_bits());
    }

    #[test]
    fn doubles_among_singles(a in floats(), b in floats()) {
        let b = b as f32;
        let (v, exact) = float8_in_float4(a);
        let order = float_order(b.into(), a);
        let near = float_order(b.into(), v.into());
        prop_assert_eq!(order, if exact || near != Ordering::Equal { near } else { Ordering::Less });
    }

    #[test]
    fn byte_strings(a in bytes(), b in bytes()) {
        let (x, y) = (seg(|o| put_bytes(o, &a)), seg(|o| put_bytes(o, &b)));
        check(Codec::Bytes(Layout::Varlena), &x, &y, a.cmp(&b));
        prop_assert_eq!(&get_bytes(&x, 0)[..], &a[..]);
        let y = inverted(&y);
        prop_assert_eq!(&get_bytes(&y, 0xFF)[..], &b[..]);
    }

    #[test]
    fn bit_strings(a in bit_string(), b in bit_string()) {
        let segments = [&a, &b].map(|bits| seg(|out| put_bits(out, &bit_image(bits))));
        // A bit string is before its extensions.
        check(Codec::Bits, &segments[0], &segments[1], a.cmp(&b));
        prop_assert_eq!(get_bits(&segments[0], 0), bit_image(&a));
        prop_assert_eq!(get_bits(&inverted(&segments[0]), 0xFF), bit_image(&a));
    }

    #[test]
    fn addresses(a in address(), b in address()) {
        let segments = [&a, &b].map(|image| seg(|out| inet::put(out, image)));
        check(Codec::Inet, &segments[0], &segments[1], network_order(&a, &b));
        prop_assert_eq!(inet::get(&mut Reader::new(&segments[0], 0)), &a[..]);
        prop_assert_eq!(inet::get(&mut Reader::new(&inverted(&segments[0]), 0xFF)), &a[..]);
    }

    #[test]
    fn unsigned(a in any::<u64>(), b in any::<u64>(), shift in 0u32..64) {
        let (a, b) = (a >> shift, b >> shift);
        let segments = [a, b].map(|v| seg(|out| put_wide(out, v.into())));
        check(Codec::Unsigned, &segments[0], &segments[1], a.cmp(&b));
        prop_assert_eq!(get_wide(&mut Reader::new(&segments[0], 0)) as u64, a);
    }

    #[test]
    fn raw_bytes(a in bytes(), tail in bytes()) {
        let mut x = seg(|o| put_raw(o, &a));
        let n = x.len();
        x.extend(tail);
        prop_assert_eq!(segment_len(Codec::Raw(Layout::Varlena), 0, &x), n);
        prop_assert_eq!(get_raw(&x[..n]), &a[..]);
    }

    #[test]
    fn numerics(a in nums(), b in nums()) {
        let ((x, scale), (y, _)) = (numeric_segment(&a.image()), numeric_segment(&b.image()));
        check(Codec::Numeric, &x, &y, a.order(&b));
        prop_assert_eq!(numeric::get(&mut Reader::new(&x, 0), scale), a.image());
        prop_assert_eq!(numeric::get(&mut Reader::new(&inverted(&x), 0xFF), scale), a.image());
    }

    #[test]
    fn numeric_scale_does_not_order(a in nums(), scale in 0u16..0x3FFF) {
        let other = Num { scale, ..a.clone() };
        prop_assert_eq!(numeric_segment(&a.image()).0, numeric_segment(&other.image()).0);
    }

    #[test]
    fn intervals(time in ints(), day in any::<i32>(), month in any::<i32>(), small in any::<bool>()) {
        let cut = |v: i32| if small { v % 100 } else { v };
        let i = Interval { time: if small { time % (3 * DAY) } else { time }, day: cut(day), month: cut(month) };
        prop_assert_eq!(Interval::from_bytes(&i.to_bytes()), i);
        let c = Interval::canonical(i.span());
        prop_assert!(c == i || !small || c.span() == i.span());
        prop_assert!(!small || Interval::canonical(c.span()) == c);
    }

    #[test]
    fn zoned_times(a in 0..=DAY, b in 0..=DAY, y in -57_599i32..57_600, z in -57_599i32..57_600) {
        let (i, j) = (timetz_instant(a, y), timetz_instant(b, z));
        let put = |i, z: i32| seg(|o| { put_int(o, i); put_int(o, z.into()) });
        check(Codec::TimeTz, &put(i, y), &put(j, z), (i, y).cmp(&(j, z)));
        prop_assert_eq!(timetz_instant(i, -y), a);
    }

    #[test]
    fn dates_among_timestamps(date in prop_oneof![any::<i32>(), -3i32..3], t in ints()) {
        let t = if t % 3 == 0 { t / DAY * DAY } else { t };
        // The order of the server: midnight, infinities beyond all.
        let rank = |v: i128, low, high| if v == low { i128::MIN } else if v == high { i128::MAX } else { v };
        let midnight = match date {
            i32::MIN => i128::MIN,
            i32::MAX => i128::MAX,
            d => i128::from(d) * i128::from(DAY),
        };
        let order = midnight.cmp(&rank(t.into(), i64::MIN.into(), i64::MAX.into()));
        let behind = |near: Ordering, exact: bool| if near == Ordering::Equal && !exact { Ordering::Less } else { near };
        let (v, exact) = timestamp_in_date(t);
        prop_assert_eq!(behind(i64::from(date).cmp(&v), exact), order);
        if date >= -2_451_545 || date == i32::MIN {
            let (v, exact) = date_in_timestamp(date);
            prop_assert_eq!(behind(t.cmp(&v), exact), order.reverse());
        }
    }

    #[test]
    fn conditions(v in -4i64..4, c in -8i64..8, strategy in 1u16..=5) {
        // Column values are even numbers: an odd constant lies behind the one below it.
        let v = 2 * v;
        let segment = |v| seg(|o| put_int(o, v));
        let place = if c % 2 == 0 { Place::At(segment(c)) } else { Place::Behind(segment(c - 1)) };
        let holds = match strategy { 1 => v < c, 2 => v <= c, 3 => v == c, 4 => v >= c, _ => v > c };
        let (edges, lossy) = ascending(strategy, place);
        prop_assert!(!lossy);
        let inside = |edges: Option<(Edge, Edge)>| edges.is_some_and(|(lower, upper)| {
            let key = segment(v);
            (match lower { Edge::Open => true, Edge::Before(s) => key >= s, Edge::After(s) => key > s })
                && match upper { Edge::Open => true, Edge::Before(s) => key < s, Edge::After(s) => key <= s }
        });
        prop_assert_eq!(inside(edges), holds);
        let (low, high) = around(c, 1, (-100, 100));
        let (edges, lossy) = ascending(strategy, Place::Within(segment(low), segment(high)));
        prop_assert!(lossy && (inside(edges) || !holds));
        prop_assert!(inside(ascending(strategy, Place::Unknown).0));
    }

    #[test]
    fn columns_in_sequence(
        rows in prop::collection::vec((prop::option::of(-70i64..70), bytes(), ints()), 2),
        desc in any::<bool>(),
    ) {
        let key = |(a, b, c): &(Option<i64>, Vec<u8>, i64)| {
            let mut k = match a {
                None => vec![NULL_LAST],
                Some(a) => seg(|o| put_int(o, *a)),
            };
            let second = seg(|o| put_bytes(o, b));
            k.extend(if desc { inverted(&second) } else { second });
            let prefix = k.len();
            put_int(&mut k, *c);
            (k, prefix)
        };
        let ((x, prefix), (y, _)) = (key(&rows[0]), key(&rows[1]));
        let (a, b) = (&rows[0], &rows[1]);
        let second = if desc { b.1.cmp(&a.1) } else { a.1.cmp(&b.1) };
        let leading = a.0.is_none().cmp(&b.0.is_none()).then(a.0.cmp(&b.0)).then(second);
        prop_assert_eq!(x.cmp(&y), leading.then(a.2.cmp(&b.2)));
        // Search keys made of the first two columns enclose exactly the rows that have them.
        let before = x[..prefix].to_vec();
        let mut after = before.clone();
        after.push(SENTINEL);
        prop_assert_eq!(before <= y && y < after, leading == Ordering::Equal);
    }

    #[test]
    fn payloads(items in prop::collection::btree_map(0usize..32, bytes(), 0..5), closed in any::<bool>()) {
        let mut payload = Vec::new();
        items.iter().for_each(|(c, b)| put_extra(&mut payload, *c, b));
        prop_assert_ne!(payload.first(), Some(&SENTINEL));
        if closed {
            payload.push(0);
        }
        let back: Vec<_> = extras(&payload).map(|(c, b)| (c, b.to_vec())).collect();
        prop_assert_eq!(back, items.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn special_numerics() {
    let special = |header: u16| numeric_segment(&header.to_ne_bytes()).0;
    let finite = |negative, weight, digits: &[u16]| {
        numeric_segment(&Num { negative, weight, scale: 0, digits: digits.to_vec() }.image()).0
    };
    let all = [
        special(0xF000),
        finite(true, i16::MAX, &[9999, 9999]),
        finite(true, i16::MIN, &[1]),
        finite(false, 0, &[]),
        finite(false, i16::MIN, &[1]),
        finite(false, i16::MAX, &[9999]),
        special(0xD000),
        special(0xC000),
    ];
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate() {
            check(Codec::Numeric, a, b, i.cmp(&j));
        }
    }
    for header in [0xF000u16, 0xD000, 0xC000] {
        let image = header.to_ne_bytes();
        assert_eq!(numeric::get(&mut Reader::new(&special(header), 0), None), image);
    }
}

#[test]
fn sizes() {
    assert_eq!(seg(|o| put_int(o, 7)).len(), 1);
    assert_eq!(seg(|o| put_int(o, 1_000_000)).len(), 4);
    // 12.34: marker and two digits.
    let n = Num { negative: false, weight: 0, scale: 2, digits: vec![12, 3400] };
    assert_eq!(numeric_segment(&n.image()), (vec![0x99, 0, 25, 0x1A, 0x90], None));
    // 2026-01-01 in microseconds since 2000.
    assert_eq!(seg(|o| put_int(o, 9497 * DAY)).len(), 8);
}
