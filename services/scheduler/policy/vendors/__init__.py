"""Cards of vendors, as the plugin `deviceshare` shares them (DV1 to DV3).

Volcano's GPU sharing (`gpus`), HAMi's vGPUs (`vgpus`), Ascend NPUs of HAMi (`npus`) and of
MindCluster (`mindcluster`). Each is a `PolicyState` on `shared_cards`; the engine knows none.
"""
