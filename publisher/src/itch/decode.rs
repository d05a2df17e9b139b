//! Bytes into messages: by type, and by exact length.
//!
//! The specification gives each type one length, and Nasdaq has kept them since version 5.0; a change comes as a new
//! type. A message of a known type with another length, longer ones included, is therefore not read by its prefix: it
//! would be another version's layout (an `A` of version 4.1 has no tracking number and no stock locate), and its fields
//! would come out wrong without a sign. It is refused, and counted.

use super::messages::Message;
pub use crate::venue::Rejected;

/// Views `bytes` (one message, without its framing) as the message that its first byte says it is.
///
/// # Errors
/// [`Rejected`]: an unknown type, or a known one with a wrong length. Any bytes give a message or an error; nothing
/// panics, and nothing beyond them is read.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, Rejected> {
    Message::view(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::itch::messages::*;

    #[test]
    fn the_23_types_of_the_specification_are_known_and_no_other() {
        let mut types = Message::TYPES.to_vec();
        types.sort_unstable();
        let mut listed = *b"SRHYLVWKJhAFECXDUPQBINO";
        listed.sort_unstable();
        assert_eq!(types, listed);
        for byte in 0..=255u8 {
            let got = decode(std::slice::from_ref(&byte)).expect_err("one byte is never a message");
            match got {
                Rejected::Unknown { message_type, len } => {
                    assert!(!listed.contains(&byte));
                    assert_eq!((message_type, len), (byte, 1));
                }
                Rejected::BadLength { message_type, actual, .. } => {
                    assert!(listed.contains(&byte));
                    assert_eq!((message_type, actual), (byte, 1));
                }
                Rejected::Empty => panic!("byte {byte} taken for nothing"),
            }
            for len in 0..64 {
                let bytes = vec![byte; len];
                assert_eq!(Message::header_of(&bytes), decode(&bytes).ok().map(|message| message.header()));
            }
        }
        assert_eq!(decode(&[]), Err(Rejected::Empty));
    }

    #[test]
    fn type_zero_is_an_unknown_type_like_any_other() {
        assert_eq!(decode(&[0; 36]), Err(Rejected::Unknown { message_type: 0, len: 36 }));
    }

    #[test]
    fn a_known_type_is_read_at_its_exact_length_only() {
        let mut bytes = [0u8; 64];
        bytes[0] = b'A';
        for len in 1..64 {
            match decode(&bytes[..len]) {
                Ok(Message::AddOrder(_)) => assert_eq!(len, AddOrder::LEN),
                Err(Rejected::BadLength { message_type: b'A', expected: 36, actual }) => {
                    assert!(actual == len && len != AddOrder::LEN);
                }
                other => panic!("length {len}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_48_bit_field_is_exact_whatever_stands_beside_it() {
        let mut bytes = [0xFFu8; 12];
        bytes[0] = b'S';
        bytes[5..11].copy_from_slice(&[0x00, 0x01, 0x02, 0x03, 0x04, 0x05]);
        let Ok(Message::SystemEvent(event)) = decode(&bytes) else { panic!("a system event") };
        assert_eq!(event.header.timestamp.get(), 0x01_0203_0405);
        assert_eq!(event.header.tracking_number.get(), 0xFFFF);
        assert_eq!(event.event_code, 0xFF);
        assert_eq!(U48([0xFF; 6]).get(), U48::MAX);
    }

    #[test]
    fn prices_convert_exactly_at_their_ends() {
        assert_eq!(Price4(0.into()).nano_dollars(), 0);
        assert_eq!(Price4(1.into()).nano_dollars(), 100_000);
        // 200,000.0000 dollars, the highest price that may be entered, and the highest that the field holds.
        assert_eq!(Price4(2_000_000_000.into()).nano_dollars(), 200_000_000_000_000);
        assert_eq!(Price4(0x7FFF_FFFF.into()).nano_dollars(), 214_748_364_700_000);
        assert_eq!(Price4(u32::MAX.into()).nano_dollars(), 429_496_729_500_000);
        assert_eq!(Price8(123_456_789.into()).nano_dollars(), Some(1_234_567_890));
        assert_eq!(Price8((i64::MAX as u64 / 10).into()).nano_dollars(), Some(9_223_372_036_854_775_800));
        assert_eq!(Price8((i64::MAX as u64 / 10 + 1).into()).nano_dollars(), None);
        assert_eq!(Price8(u64::MAX.into()).nano_dollars(), None);
    }
}
