//! What every completion status and every asynchronous event asks for: one table, for the tests of both lanes.

/// Gives `then!` each status: the name of its test, the status, its reaction.
macro_rules! every_status {
    ($then:ident) => {
        $then! {
            success: Success, Reclaim;
            local_length: LocalLength, OwnFault;
            local_operation: LocalOperation, OwnFault;
            local_eec: LocalEec, OwnFault;
            local_protection: LocalProtection, OwnFault;
            flushed: Flushed, Ignore;
            window_bind: WindowBind, OwnFault;
            bad_response: BadResponse, DropPeer;
            local_access: LocalAccess, OwnFault;
            remote_invalid_request: RemoteInvalidRequest, RefusePeer;
            remote_access: RemoteAccess, RefusePeer;
            remote_operation: RemoteOperation, DropPeer;
            retry_exceeded: RetryExceeded, DropPeer;
            rnr_retry_exceeded: RnrRetryExceeded, DropPeer;
            local_rdd: LocalRdd, OwnFault;
            remote_invalid_read: RemoteInvalidRead, RefusePeer;
            remote_aborted: RemoteAborted, DropPeer;
            invalid_eecn: InvalidEecn, OwnFault;
            invalid_eec_state: InvalidEecState, OwnFault;
            fatal: Fatal, Rebuild;
            response_timeout: ResponseTimeout, DropPeer;
            general: General, Rebuild;
            tag_matching: TagMatching, OwnFault;
            tag_matching_incomplete: TagMatchingIncomplete, OwnFault;
        }
    };
}

/// Gives `then!` each event: the name of its test, the event, its reaction.
macro_rules! every_event {
    ($then:ident) => {
        $then! {
            completion_queue_error: CompletionQueueError, RebuildCompletionQueue;
            queue_pair_fatal: QueuePairFatal, RebuildQueuePair;
            queue_pair_request: QueuePairRequest, DropPeer;
            queue_pair_access: QueuePairAccess, DropPeer;
            established: Established, Count;
            send_queue_drained: SendQueueDrained, Count;
            path_migrated: PathMigrated, Count;
            path_migration_failed: PathMigrationFailed, RebuildQueuePair;
            device_fatal: DeviceFatal, ReopenDevice;
            port_active: PortActive, RefreshPort;
            port_error: PortError, PortDown;
            lid_change: LidChange, RefreshPort;
            pkey_change: PkeyChange, RefreshPort;
            subnet_manager_change: SubnetManagerChange, RefreshPort;
            shared_receive_error: SharedReceiveError, Count;
            shared_receive_limit: SharedReceiveLimit, Count;
            last_receive: LastReceive, Count;
            client_reregister: ClientReregister, RefreshPort;
            gid_change: GidChange, CheckAddress;
            work_queue_fatal: WorkQueueFatal, Count;
        }
    };
}

pub(crate) use {every_event, every_status};
