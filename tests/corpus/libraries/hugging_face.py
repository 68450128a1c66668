"""TensorFlow classes of transformers: narrow, two layers, with the loss that they bring."""
# ruff: noqa: E501

from tests.corpus.libraries.entry import LIBRARIES, LibraryModel, fit, ids, spec

_WIDTHS = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_WIDTHS |= {"intermediate_size": 48}
_DECODER = {"vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
_DECODER |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_attention_heads": 4}
_DECODER |= {"decoder_attention_heads": 4}
_CLASSES = {"input_ids": ids(None, 16), "labels": ids(None)}
_MASKED = {"input_ids": ids(None, 16), "attention_mask": ids(None, 16), "labels": ids(None)}
_TOKENS = {"input_ids": ids(None, 16), "labels": ids(None, 16)}
_PAIRS = {**_TOKENS, "decoder_input_ids": ids(None, 12), "labels": ids(None, 12)}
_OPEN = {"input_ids": ids(None, None), "attention_mask": ids(None, None), "labels": ids(None)}
_PICTURES = {"pixel_values": spec(None, 3, 32, 32), "labels": ids(None)}
_SMALL_PICTURES = {**_WIDTHS, "image_size": 32, "patch_size": 8}
_STAGES = {"depths": [2, 2], "num_stages": 2, "hidden_sizes": [8, 16]}

TABLE = {
    "bert_classes": ("Bert", "ForSequenceClassification", _WIDTHS, _MASKED),
    "bert_open_length": ("Bert", "ForSequenceClassification", _WIDTHS, _OPEN),
    "bert_tagger": ("Bert", "ForTokenClassification", _WIDTHS, _TOKENS),
    "roberta_masked": ("Roberta", "ForMaskedLM", _WIDTHS, _TOKENS),
    "albert_classes": ("Albert", "ForSequenceClassification", {**_WIDTHS, "embedding_size": 16}, _CLASSES),
    "electra_classes": ("Electra", "ForSequenceClassification", {**_WIDTHS, "embedding_size": 16}, _CLASSES),
    "deberta_v2_classes": ("DebertaV2", "ForSequenceClassification", {**_WIDTHS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}, _CLASSES),
    "longformer_classes": ("Longformer", "ForSequenceClassification", {**_WIDTHS, "attention_window": 8}, _CLASSES),
    "distilbert_classes": ("DistilBert", "ForSequenceClassification", {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}, _CLASSES),
    "xlnet_classes": ("XLNet", "ForSequenceClassification", {"vocab_size": 99, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}, _CLASSES),
    "gpt2_language": ("GPT2", "LMHeadModel", {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}, _TOKENS),
    "opt_language": ("OPT", "ForCausalLM", {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48, "word_embed_proj_dim": 32}, _TOKENS),
    "t5_pairs": ("T5", "ForConditionalGeneration", {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}, _PAIRS),
    "bart_pairs": ("Bart", "ForConditionalGeneration", _DECODER, _PAIRS),
    "funnel_classes": ("Funnel", "ForSequenceClassification", {"vocab_size": 99, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48}, _CLASSES),
    "vit_classes": ("ViT", "ForImageClassification", _SMALL_PICTURES, _PICTURES),
    "swin_classes": ("Swin", "ForImageClassification", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}, _PICTURES),
    "convnext_classes": ("ConvNext", "ForImageClassification", _STAGES, _PICTURES),
    "segformer_pictures": ("Segformer", "ForImageClassification", {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2]}, _PICTURES),
    "whisper_pairs": ("Whisper", "ForConditionalGeneration", {**_DECODER, "num_mel_bins": 8, "max_source_positions": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "suppress_tokens": None, "begin_suppress_tokens": None}, {"input_features": spec(None, 8, 40), "decoder_input_ids": ids(None, 12), "labels": ids(None, 12)}),
}  # fmt: skip
"""{model: (family, head, configuration, inputs)}."""


def _saver(family, head, configuration, inputs):
    def build(folder):
        import tf_keras
        import transformers

        config = getattr(transformers, f"{family}Config")(**configuration, num_labels=3)
        made = getattr(transformers, f"TF{family}{head}")(config)
        made.compile(optimizer=tf_keras.optimizers.Adam(1e-3))
        fit(folder, made, inputs)

    return build


for _name, _row in TABLE.items():
    LIBRARIES[_name] = LibraryModel(_name, "transformers", _saver(*_row))
