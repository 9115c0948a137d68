
import os
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

name = "Qwen/Qwen3-4B"
size = int(os.environ["SIZE"])
arguments = GRPOConfig(
    output_dir="out", use_vllm=True, vllm_mode="colocate", num_generations=6, beta=0.02,
    per_device_train_batch_size=size, max_completion_length=1500, vllm_gpu_memory_utilization=0.4,
)
os.mkdir("trap")
trainer = GRPOTrainer(model=AutoModel.from_pretrained('Qwen/Qwen3-8B'), args=arguments, peft_config=LoraConfig(r=8))
