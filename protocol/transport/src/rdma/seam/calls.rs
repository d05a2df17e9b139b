//! What a seam records: calls, in our own words.

use super::super::device::Gid;
use super::super::queue_pair::{Depths, QueuePairState, Service};
use super::super::sys;

/// A call that makes, changes or destroys something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// The device was opened (`ibv_open_device`).
    OpenDevice,
    /// `ibv_create_cq`.
    CreateCompletionQueue {
        /// Entries asked for.
        len: usize,
    },
    /// `ibv_create_qp`.
    CreateQueuePair {
        /// Its number.
        number: u32,
        /// Its service; `None`: another one.
        service: Option<Service>,
        /// Its queues.
        depths: Depths,
    },
    /// `ibv_destroy_qp`.
    DestroyQueuePair {
        /// Its number.
        number: u32,
    },
    /// `ibv_modify_qp`.
    ModifyQueuePair(Modification),
    /// `ibv_create_ah`.
    CreateAddressHandle(AddressAttributes),
    /// `ibv_attach_mcast`.
    Attach {
        /// The queue pair's number.
        queue_pair: u32,
        /// The group's GID.
        gid: Gid,
        /// The group's LID.
        lid: u16,
    },
    /// `ibv_detach_mcast`.
    Detach {
        /// The queue pair's number.
        queue_pair: u32,
        /// The group's GID.
        gid: Gid,
        /// The group's LID.
        lid: u16,
    },
    /// `ibv_reg_mr`.
    Register {
        /// Bytes.
        len: usize,
        /// `ibv_access_flags`.
        access: u32,
    },
}

/// What `ibv_modify_qp` was given. What the mask does not name means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Modification {
    /// The queue pair's number.
    pub queue_pair: u32,
    /// `ibv_qp_attr_mask`.
    pub mask: u32,
    /// `qp_state`.
    pub state: QueuePairState,
    /// `port_num`.
    pub port: u8,
    /// `pkey_index`.
    pub pkey_index: u16,
    /// `qkey`.
    pub qkey: u32,
    /// `qp_access_flags`.
    pub access: u32,
    /// `path_mtu`, as verbs number it: 1 is 256 bytes.
    pub path_mtu: u32,
    /// `dest_qp_num`.
    pub destination: u32,
    /// `rq_psn`.
    pub receive_packet: u32,
    /// `sq_psn`.
    pub send_packet: u32,
    /// `max_rd_atomic`.
    pub reads: u8,
    /// `max_dest_rd_atomic`.
    pub peer_reads: u8,
    /// `min_rnr_timer`.
    pub rnr_timer: u8,
    /// `timeout`.
    pub ack_timeout: u8,
    /// `retry_cnt`.
    pub retries: u8,
    /// `rnr_retry`.
    pub rnr_retries: u8,
    /// `ah_attr`.
    pub address: AddressAttributes,
}

impl Modification {
    pub(super) fn new(queue_pair: u32, attributes: &sys::ibv_qp_attr, mask: i32) -> Modification {
        Modification {
            queue_pair,
            mask: mask as u32,
            state: QueuePairState::from_raw(attributes.qp_state),
            port: attributes.port_num,
            pkey_index: attributes.pkey_index,
            qkey: attributes.qkey,
            access: attributes.qp_access_flags,
            path_mtu: attributes.path_mtu,
            destination: attributes.dest_qp_num,
            receive_packet: attributes.rq_psn,
            send_packet: attributes.sq_psn,
            reads: attributes.max_rd_atomic,
            peer_reads: attributes.max_dest_rd_atomic,
            rnr_timer: attributes.min_rnr_timer,
            ack_timeout: attributes.timeout,
            retries: attributes.retry_cnt,
            rnr_retries: attributes.rnr_retry,
            address: AddressAttributes::new(&attributes.ah_attr),
        }
    }
}

/// `ibv_ah_attr`: the way to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AddressAttributes {
    /// `grh.dgid`.
    pub gid: Gid,
    /// `grh.flow_label`.
    pub flow_label: u32,
    /// `grh.sgid_index`.
    pub source_index: u8,
    /// `grh.hop_limit`.
    pub hop_limit: u8,
    /// `grh.traffic_class`.
    pub traffic_class: u8,
    /// `dlid`.
    pub lid: u16,
    /// `sl`.
    pub service_level: u8,
    /// `src_path_bits`.
    pub source_path_bits: u8,
    /// `static_rate`.
    pub static_rate: u8,
    /// `is_global`.
    pub is_global: bool,
    /// `port_num`.
    pub port: u8,
}

impl AddressAttributes {
    pub(super) fn new(raw: &sys::ibv_ah_attr) -> AddressAttributes {
        AddressAttributes {
            // SAFETY: both members of the union are sixteen bytes, any of which are a value.
            gid: Gid(unsafe { raw.grh.dgid.raw }),
            flow_label: raw.grh.flow_label,
            source_index: raw.grh.sgid_index,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            lid: raw.dlid,
            service_level: raw.sl,
            source_path_bits: raw.src_path_bits,
            static_rate: raw.static_rate,
            is_global: raw.is_global != 0,
            port: raw.port_num,
        }
    }

    pub(super) fn raw(&self) -> sys::ibv_ah_attr {
        let mut raw = sys::ibv_ah_attr::default();
        raw.grh.dgid.raw = self.gid.0;
        raw.grh.flow_label = self.flow_label;
        raw.grh.sgid_index = self.source_index;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.dlid = self.lid;
        raw.sl = self.service_level;
        raw.src_path_bits = self.source_path_bits;
        raw.static_rate = self.static_rate;
        raw.is_global = u8::from(self.is_global);
        raw.port_num = self.port;
        raw
    }
}
