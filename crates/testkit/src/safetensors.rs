//! Safetensors files for tests, right and wrong ones.

/// A file of this header and so many zero bytes of data.
pub fn file(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// A file of F32 tensors of one side each, in this order.
pub fn floats(tensors: &[(&str, usize)]) -> Vec<u8> {
    let mut end = 0;
    let mut entries = vec![r#""__metadata__":{"format":"pt"}"#.to_owned()];
    for (name, side) in tensors {
        let begin = end;
        end += side * 4;
        entries
            .push(format!(r#""{name}":{{"dtype":"F32","shape":[{side}],"data_offsets":[{begin},{end}]}}"#));
    }
    file(&format!("{{{}}}", entries.join(",")), end)
}
