//! `inet` and `cidr`: their on-disk image (`inet_struct`: family, bits of the mask, the address) to
//! an ordered segment and back. No PostgreSQL symbol is used here.
//!
//! The order is that of `network_cmp`: the family, the networks as far as both masks go, the
//! shorter mask, the whole addresses. With zeros behind the mask, a network sorts before all
//! networks that it contains. So the segment is the family, the network, the bits of the mask, and
//! the address if it is not that of the network.

use super::reader::Reader;

/// First byte of a segment, with the family in it.
const FAMILY: u8 = 0x80;
/// The server's AF_INET6; everything else has addresses of 4 bytes.
const V6: u8 = 3;
const LONGEST: usize = 16;

/// Bytes of an address.
fn width(family: u8) -> usize {
    if family == V6 { 16 } else { 4 }
}

/// Appends the segment of an image.
pub fn put(out: &mut Vec<u8>, image: &[u8]) {
    let (family, bits) = (image[0], image[1]);
    let address = &image[2..2 + width(family)];
    let mut network = [0; LONGEST];
    let network = &mut network[..address.len()];
    for (i, (to, from)) in network.iter_mut().zip(address).enumerate() {
        let kept = usize::from(bits).saturating_sub(8 * i).min(8) as u32;
        *to = from & !(0xFFu32 >> kept) as u8;
    }
    out.push(FAMILY | family);
    out.extend_from_slice(network);
    let inside = network != address;
    out.extend([bits, inside.into()]);
    if inside {
        out.extend_from_slice(address);
    }
}

/// The image of a segment.
pub fn get(r: &mut Reader) -> Vec<u8> {
    let family = r.byte() & !FAMILY;
    let mut read = |n: usize| -> Vec<u8> { (0..n).map(|_| r.byte()).collect() };
    let network = read(width(family));
    let tail = read(2);
    let address = if tail[1] == 0 { network } else { read(width(family)) };
    [&[family, tail[0]], &address[..]].concat()
}

/// Length of the segment that `key` starts with; `flip` is 0xFF if it is inverted.
pub fn segment_len(flip: u8, key: &[u8]) -> usize {
    let width = width((key[0] ^ flip) & !FAMILY);
    let inside = key[width + 2] ^ flip;
    width + 3 + if inside == 0 { 0 } else { width }
}
