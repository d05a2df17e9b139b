//! With the feature `rdma`: the declarations of librdmacm, from the header that is installed.
//!
//! Types of libibverbs are taken from `ibverbs-sys`, so that a queue pair of one is a queue pair of the other.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "rdma")]
    rdmacm();
}

#[cfg(feature = "rdma")]
fn rdmacm() {
    use std::env;
    use std::path::PathBuf;

    println!("cargo::rustc-link-lib=rdmacm");
    let bindings = bindgen::Builder::default()
        .header_contents("rdmacm.h", "#include <rdma/rdma_cma.h>\n")
        .allowlist_function("rdma_.*")
        .allowlist_type("rdma_cm_join_mc_attr_mask")
        // What the C compiler inlines is not in the library.
        .blocklist_function("rdma_(seterrno|get_local_addr|get_peer_addr)")
        .blocklist_type("_?ibv_.*")
        .blocklist_type("(sockaddr|in6?_addr|sa_family_t|in_port_t).*")
        .raw_line("use ibverbs_sys::*;")
        .raw_line("use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};")
        // Only ever pointed to.
        .raw_line("pub type ibv_sa_path_rec = ::std::os::raw::c_void;")
        // As in ibverbs-sys, or the names would not fit.
        .constified_enum_module("ibv_qp_type")
        .prepend_enum_name(false)
        .derive_debug(false)
        .layout_tests(true)
        .size_t_is_usize(true)
        .generate();
    let bindings = match bindings {
        Ok(bindings) => bindings,
        Err(error) => panic!(
            "no bindings to librdmacm: {error}\ninstall what the feature `rdma` needs: apt-get install librdmacm-dev \
             libibverbs-dev cmake pkg-config clang libclang-dev"
        ),
    };
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("rdmacm.rs")).expect("OUT_DIR can be written");
}
