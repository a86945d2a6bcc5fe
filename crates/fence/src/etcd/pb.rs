//! Protocol messages of etcd, generated from `proto/etcd.proto`.

#![allow(clippy::all, reason = "generated code")]

tonic::include_proto!("etcdserverpb");
