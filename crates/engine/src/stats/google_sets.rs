//! The statistics of servers that are named by their addresses (`google_grpc`), by Envoy's names.

use super::Counter;
use super::sets::stats;

stats! {
    /// `grpc.<stat prefix>.…`: of calls of a `google_grpc`.
    pub GoogleGrpcStats {
        Counter streams_closed_0;
        Counter streams_closed_1;
        Counter streams_closed_10;
        Counter streams_closed_11;
        Counter streams_closed_12;
        Counter streams_closed_13;
        Counter streams_closed_14;
        Counter streams_closed_15;
        Counter streams_closed_16;
        Counter streams_closed_2;
        Counter streams_closed_3;
        Counter streams_closed_4;
        Counter streams_closed_5;
        Counter streams_closed_6;
        Counter streams_closed_7;
        Counter streams_closed_8;
        Counter streams_closed_9;
        Counter streams_total;
    }
}

impl GoogleGrpcStats {
    /// Of calls that ended with this status: one that gRPC does not know counts as `UNKNOWN`.
    #[must_use]
    pub const fn closed(&self, status: u32) -> &Counter {
        match status {
            0 => &self.streams_closed_0,
            1 => &self.streams_closed_1,
            3 => &self.streams_closed_3,
            4 => &self.streams_closed_4,
            5 => &self.streams_closed_5,
            6 => &self.streams_closed_6,
            7 => &self.streams_closed_7,
            8 => &self.streams_closed_8,
            9 => &self.streams_closed_9,
            10 => &self.streams_closed_10,
            11 => &self.streams_closed_11,
            12 => &self.streams_closed_12,
            13 => &self.streams_closed_13,
            14 => &self.streams_closed_14,
            15 => &self.streams_closed_15,
            16 => &self.streams_closed_16,
            _ => &self.streams_closed_2,
        }
    }
}
